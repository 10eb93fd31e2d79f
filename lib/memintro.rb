# frozen_string_literal: true

# A process has one memintro: under `memintro run`, it is loaded before the application requires its own copy.
return if defined?(Memintro.start)

require_relative "memintro/version"
require_relative "memintro/support/native"
require_relative "memintro/support/configuration"
require_relative "memintro/heap/dumping"
require_relative "memintro/heap/figures"
require_relative "memintro/heap/holding"
require_relative "memintro/control/listen"
require_relative "memintro/measure/measuring"
require_relative "memintro/runtime/loader"
require_relative "memintro/runtime/main_ractor"
require_relative "memintro/process/figures"
require_relative "memintro/process/memory"
require_relative "memintro/malloc/call_site"
require_relative "memintro/malloc/stacks"
require_relative "memintro/malloc/totals"
require_relative "memintro/support/list"
require_relative "memintro/runtime/stop_timer"

# Shows which line of Ruby code owns the memory of a process: exact malloc figures by call site, in the live process.
#
# Requiring this file starts nothing and changes nothing. {start} begins to track, and {stop} puts everything back. All
# figures are of malloc: what Ruby stores inside its object slots (since 3.2 many short strings, arrays and objects) is
# not included. Reading figures is not tracked. Every method may be called from any thread and from signal handlers.
#
# In a Ractor other than the main one, these methods work: {rss}, {pss}, {uss} and the other figures of the process,
# {cgroup}, {gc_delta} and {untracked}. All others raise a {RactorError} there, which says what to do. What Ractors
# allocate is tracked, and is included in the figures that the main Ractor reads.
#
# Parts that not every program needs are loaded at their first use, which takes some milliseconds once.
#
# @example A leak hunt
#   Memintro.start
#   do_the_work
#   Memintro.mark
#   do_the_work
#   Memintro.report(by: :growth)
module Memintro
  Loader.late(
    self,
    Account: "process/account", HeapCopy: "heap/heap_copy", HeapDump: "heap/heap_dump", Holder: "heap/holder", HeldPath: "heap/holder",
    Holders: "heap/holder", HeldValue: "heap/holder", Background: "runtime/background", Doctor: "malloc/doctor",
    GcDelta: "heap/gc_delta", HeapRow: "heap/row", HistogramRow: "heap/row", InternalRow: "heap/row",
    IseqGroup: "heap/row", Iseq: "heap/iseq", IseqTotals: "heap/iseq", Occupancy: "heap/occupancy",
    CgroupFiles: "process/cgroup_files", Cgroup: "process/cgroup", MemoryLog: "logging/memory_log",
    Measurement: "measure/measurement", Comparison: "measure/comparison", Report: "report/report"
  )

  # See memintro/diff.
  class Diff
    extend Lazy
  end

  # See memintro/sampler.
  class RSSSampler
    extend Lazy

    # @raise [RactorError] in a Ractor other than the main one: what it asks is the main one's to answer
    def self.new(*arguments, **options, &block)
      return super if Ractor.current.equal?(Loader::MAIN_RACTOR)

      raise RactorError, "a sampler can be made only in the main Ractor; make it there, and ask Memintro.rss " \
                              "and the like in others"
    end
  end

  # The former name.
  Sampler = RSSSampler
  deprecate_constant :Sampler

  # See memintro/snapshot.
  class Snapshot
    extend Lazy
    extend Lazy::Load
  end

  # See memintro/trend.
  class Trend
    extend Lazy
  end

  extend Dumping
  extend HeapFigures
  extend Holding
  extend Listen
  extend Measuring
  extend ProcessFigures
  extend Stacks

  @epoch = 0

  class << self
    # Starts tracking with empty figures. Takes milliseconds: the malloc functions of every loaded module are
    # redirected, unless the process was preloaded. If the settings are already in force, nothing happens. Another
    # `mode` or `sample_bytes` takes effect at once and keeps what was collected, each block with its weight (with a
    # {stop} in between, nothing is kept). Other limits start again from zero.
    #
    # @param mode [Symbol] `:full`, every block; `:sampled`, estimates at a cost that can be left on
    # @param sample_bytes [Integer, nil] of sampled mode: one byte in so many is sampled on average, at most 2^30;
    #   nil: as configured, else in 524,288
    # @param stop_after [Numeric, nil] seconds after which tracking stops by itself, in forked children too; nil: as
    #   configured, else never. Given again, it counts from then.
    # @param objects [Boolean, Array<Class, String>] also tracks Ruby objects by the line that made them
    #   ({CallSite#live_objects}, {CallSite#classes}): true, all; an Array of classes and names of classes, only these
    #   and their subclasses. With another value, objects are counted from zero; docs/objects.md has the cost
    # @param max_tracker_bytes [Integer, nil] most bytes that tracking may use, at least 4 MiB; nil: as configured, else
    #   no limit
    # @param max_sites [Integer, nil] most call sites to tell apart, the rest share `(other)`; nil: as configured,
    #   else the hook's own limit
    # @param stack_depth [Integer] lines of Ruby in a call site, 1 to 64: with 2 and more, a call site is a whole stack
    #   ({stacks}, {CallSite#stack}), and {top} has the sums by line; docs/stacks.md has the cost
    # @return [Boolean] true; false under `MEMINTRO_DISABLE`, where nothing is tracked: see {disabled?}
    # @raise [ArgumentError, TypeError] on a wrong setting
    # @raise [UnsupportedError, DisabledError, ExhaustedError, AllocatorError, NotSeenError, BusyError]
    # @example For a minute, in production
    #   Memintro.start(mode: :sampled, stop_after: 60)
    def start(mode: default(:mode), sample_bytes: nil, stop_after: default(:stop_after),
              max_tracker_bytes: default(:max_tracker_bytes), max_sites: default(:max_sites),
              objects: default(:objects), stack_depth: default(:stack_depth))
      return false if Brake.holds?

      MainRactor.only
      mode = Arguments.choice(:mode, mode, Configuration::MODES.keys)
      mean = mean_distance(mode, sample_bytes)
      seconds = Arguments.seconds(:stop_after, stop_after, optional: true)
      bytes = Arguments.count(:max_tracker_bytes, max_tracker_bytes, least: Configuration::LEAST_TRACKER_BYTES,
                                                                     optional: true)
      sites = Arguments.count(:max_sites, max_sites, least: 1, most: Configuration::MOST_SITES, optional: true)
      objects = Arguments.objects(:objects, objects)
      depth = Arguments.count(:stack_depth, stack_depth, least: 1, most: Configuration::MOST_STACK_DEPTH)
      Native.load_hook
      begun = while_tracked { Native.start(Configuration::MODES[mode], sites || 0, bytes || 0, mean || 0, depth) }
      track_objects(objects)
      @epoch += 1 if begun == :ok
      # Allocations that Ruby makes for a first call do not belong to the program.
      untracked { StopTimer.set(seconds) } if seconds || begun != :unchanged
      true
    end

    # Stops tracking and puts back what {start} changed. The figures stay readable until the next start.
    #
    # @return [Totals] the final ones
    # @raise [BusyError]
    def stop
      MainRactor.only
      StopTimer.set(nil)
      Native.stop
      totals
    end

    # Whether `MEMINTRO_DISABLE` is set in the environment. With it, the person who runs the program turns memintro off:
    # {start}, {track} (which still runs its block), {listen}, {log_every}, {RSSSampler#start}, the middleware and the
    # like do nothing and raise nothing, as if tracking were off. Methods that only read, such as {rss}, {snapshot} and
    # {totals}, still work. `0`, `false`, `no`, `off` and an empty value do not turn it off; every other value does.
    #
    # @return [Boolean]
    def disabled?
      Brake.on?
    end

    # @return [Boolean] whether allocations are followed now
    def tracking?
      Native.tracking?
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [Symbol] `:off`, `:full` or `:sampled`
    def mode
      Native.mode
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [Boolean] whether the hook has been first in `LD_PRELOAD`, as under `memintro run`
    def preloaded?
      Native.preloaded?
    rescue Ractor::Error
      MainRactor.refuse
    end

    # Tracks the block. If tracking is already on, it stays on and keeps its figures. Otherwise it is on only during the
    # block, and call sites can be read afterwards.
    #
    # @param settings [Hash] as for {start}; not allowed where tracking is on already
    # @return [Totals] what happened during the block, in all threads; nothing under `MEMINTRO_DISABLE`
    # @raise [ArgumentError, TypeError] without a block, or on a wrong setting
    # @raise [NotSeenError] if another library answers malloc before the hook; or whatever else {start} raises
    # @example
    #   Memintro.track { parse(document) }.live_bytes
    def track(**settings, &block)
      raise ArgumentError, "track needs a block: Memintro.track { … }" unless block
      return difference(&block) if Brake.holds?
      return track_within(settings, &block) if tracking?

      start(**settings)
      begin
        yield
      ensure
        final = stop
      end
      final
    end

    # Does not track what the current thread allocates in the block. May be nested. Blocks that were allocated before
    # are still followed until they are freed.
    #
    # @return [Object] the block's value
    def untracked
      Native.untracked_enter
      yield
    ensure
      Native.untracked_leave
    end

    # Sets the mark: {CallSite#growth} counts from the live bytes of this moment.
    # @return [nil]
    def mark
      MainRactor.only
      Native.mark
    end

    # Clears all figures and blocks; tracking goes on, if it is on. The free of a cleared block is not counted.
    # @return [nil]
    def clear
      MainRactor.only
      @epoch += 1
      Native.clear
    end

    # @return [Totals] of the process, since the start or {clear}. Costs about a microsecond.
    def totals
      untracked { Totals.of(Native.totals) }
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [ThreadTotals] of the current thread. Costs about a microsecond.
    def thread_totals
      untracked { ThreadTotals.new(*Native.thread_totals) }
    rescue Ractor::Error
      MainRactor.refuse
    end

    # Visits all call sites of one instant. Costs about a microsecond for each.
    #
    # @param min_live_bytes [Integer] leave out those with less; 0: none
    # @yieldparam site [CallSite]
    # @return [nil, Enumerator] an enumerator without a block
    def each_call_site(min_live_bytes: 0, &block)
      Arguments.count(:min_live_bytes, min_live_bytes)
      return enum_for(:each_call_site, min_live_bytes: min_live_bytes) unless block

      call_sites.take.each(min_live_bytes: min_live_bytes, &block)
      nil
    end

    # Returns the top call sites.
    #
    # @param n [Integer, nil] how many; nil: all
    # @param by [Symbol] what to sort by, one of {CallSite::FIGURES}
    # @param older_than_gcs [Integer, nil] count as live only blocks that outlived so many GCs, and leave out sites
    #   without any: that shows what leaks, not caches that turn over. Visits every live block.
    # @param older_than [Integer, nil] the former name of `older_than_gcs`
    # @param group [Symbol] sums over all sites of a `:file`, `:gem`, `:method`, or `:app`, the innermost line of the
    #   application; `:stack`, as {Memintro.stacks}. `:method`, `:app` and `:stack` need a `stack_depth` of at least 2.
    # @return [List<CallSite>] greatest first
    # @raise [ArgumentError, TypeError]
    # @raise [Error] if there are no stacks to group by
    def top(n = 20, by: default_figure, older_than_gcs: nil, older_than: nil, group: :line)
      Arguments.count(:n, n, optional: true)
      Arguments.count(:older_than_gcs, older_than_gcs, most: CallSite::MOST_AGE, optional: true)
      older_than_gcs ||= Arguments.count(:older_than, older_than, most: CallSite::MOST_AGE, optional: true)
      by = untracked { Arguments.choice(:by, by, CallSite::FIGURES) }
      group = untracked { call_sites && Arguments.choice(:group, group, SiteGroups::ALL) }
      unless group == :line
        return top_groups(n, by, group) unless older_than_gcs

        raise ArgumentError, "group is #{group.inspect}; with older_than_gcs it must be :line"
      end

      call_sites.take(most: older_than_gcs ? nil : n, by: by).top(n, by: by, older_than_gcs: older_than_gcs)
    end

    # Returns one call site by its name, or by the end of its name, beginning at a folder or file.
    #
    # @param name [String] such as `"leak.rb:12"`, `"app/models/user.rb:7"`, `"(gc)"`
    # @return [CallSite, nil] nil if there is none
    # @raise [AmbiguousNameError] if several names end so and none is exactly that
    def [](name)
      call_sites.take.find(Arguments.text(:name, name))
    end

    # Writes a report about this process.
    #
    # @param io [#write]
    # @param format [Symbol] `:text`, a table to read; `:json`; `:html`, a page with a flame graph; `:folded`, a line
    #   for each stack, as tools for flame graphs read them; `:speedscope`, for www.speedscope.app
    # @param top [Integer, nil] how many call sites; nil: all, the default for all formats but `:text`
    # @param by [Symbol] what to sort by, one of {CallSite::FIGURES}
    # @param app_root [String, nil] folder that paths are shown relative to; nil: as configured, else the current one
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def report(io = $stdout, format: :text, top: loaded_report.default_top(format), by: default_figure, app_root: nil)
      Arguments.output(io)
      reports = loaded_report
      untracked do
        Arguments.count(:top, top, optional: true)
        by = Arguments.choice(:by, by, CallSite::FIGURES)
        # A page has the sites beyond `top` as one frame.
        sites = call_sites.take(most: format.to_s == "html" ? nil : top, by: by, stacks: true)
        # The text takes memory of its own.
        Native.give_pages_back
        reports.write(sites, io, format: format, top: top, by: by, app_root: app_root || configuration.app_root)
      end
    end

    # Takes a snapshot of this process. Without arguments it is light: the memory of the process, `GC.stat`,
    # `GC.stat_heap` where Ruby has it, and, while tracking, the totals and the 100 call sites with most live bytes. It
    # costs about a millisecond, most of it for the control group, and 3 to 4 ms in a process of one GiB with 35,000
    # call sites. {Snapshot#missing} names what cannot be read, for example without /proc.
    #
    # Each part adds to that cost. The parts that walk the heap share one walk, in steps of some milliseconds. Other
    # threads run between the steps. A garbage collection that is under way is finished first. Each page of the heap is
    # read at one instant, and the whole heap over the time of the walk. Objects and code of memintro are left out:
    #
    # - `:pss` – proportional and private memory: the kernel walks the page tables, 40 ms for each GiB;
    # - `:sites` – all call sites: a microsecond for each;
    # - `:types` – objects by type, `:classes` – by class, `:iseqs` – instruction sequences by file and line,
    #   `:internals` – what only the VM sees, `:occupancy` – how full the heap's pages are: each a walk of the heap,
    #   8 to 50 ms for a million objects ({Snapshot::Parts::COSTS});
    # - `:all` – all of these but `:account`, except those that cannot be read here.
    #
    # @param parts [Array<Symbol>] of {Snapshot::Parts::ALL}, or `:all`
    # @return [Snapshot]
    # @raise [ArgumentError, TypeError] on an unknown part
    # @raise [RactorError] in a Ractor other than the main one
    # @raise [Error] if a part that was named cannot be had
    # @example
    #   Memintro.snapshot.save("before.json")
    #   Memintro.snapshot(:iseqs, :classes).iseqs[:bytes]
    def snapshot(*parts)
      unless Ractor.current.equal?(Loader::MAIN_RACTOR)
        raise RactorError, "a snapshot can be taken only in the main Ractor; call Memintro.snapshot there, or send " \
                           "the main Ractor a message to do so"
      end

      Lazy.load(Snapshot)
      Snapshot.take(parts)
    end

    # Writes a line about the memory of this process into a log, now and every `seconds`, until the process ends or
    # {MemoryLog#stop} is called. Forked children and daemons write their own lines. A line costs about 0.1 ms, in a
    # thread of its own. `memintro plot` plots these lines.
    #
    #     MEMORY[123]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live_objects: 1.2 Million
    #
    # @param seconds [Numeric] between two lines
    # @param logger [#info, #write, nil] nil: the `rack.logger` that {Middleware} saw last (so none before the first
    #   request, nor without {Middleware}), else Rails' logger, else standard error
    # @param details [Boolean] adds the live bytes of malloc (`malloc_live: off` while nothing is tracked; in sampled
    #   mode followed by `(estimate ±0.3 MB)`, the standard error), the number of collections, and the GC time since the
    #   line before
    # @param format [Symbol] `:article`, the line above; `:logfmt` or `:json`, as lines of requests: `rss_bytes`,
    #   `live_objects`, and with details `malloc_live_bytes`, its standard error while sampling, `gc_count`, `gc_ms`
    # @param fragmentation [Boolean] adds `fragmentation: 43.0 MB` (`fragmentation_bytes`), the resident memory that
    #   malloc has free but keeps. Each line then takes an {account} of the process, some 35 ms for each GiB, in the
    #   thread that writes the lines; the process stands still for up to 34 ms of them. Nothing is added where the
    #   allocator does not tell
    # @return [MemoryLog] under `MEMINTRO_DISABLE` one that writes nothing
    # @raise [TypeError, ArgumentError] on wrong arguments
    # @raise [RactorError] in a Ractor that is not the main one
    # @example
    #   log = Memintro.log_every(2, Logger.new("log/memory.log"))
    #   log.stop
    def log_every(seconds = 2, logger = nil, details: false, format: :article, fragmentation: false)
      MainRactor.only unless Brake.on?
      Loader.need(:MemoryLog)
      untracked { MemoryLog.new(seconds, logger, details: details, format: format, fragmentation: fragmentation) }
    end

    # Returns what is on, what was found and patched, which allocations no hook can see, and what would not work here
    # and why. Loads the hook to ask it, which by itself changes nothing.
    #
    # @return [Doctor]
    def doctor
      MainRactor.only
      Loader.need(:Doctor)
      untracked { Doctor.examine }
    end

    # @return [Configuration] defaults of {start}, {report} and of the report at exit. At first those of the
    #   `MEMINTRO_…` variables.
    # @raise [ArgumentError] if one of the variables has a wrong value
    def configuration
      # Takes no lock: reports are also written in signal handlers, and reading ENV twice gives the same result.
      @configuration ||= Configuration.new(ENV)
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @yieldparam configuration [Configuration]
    # @return [nil]
    # @example
    #   Memintro.configure { |c| c.max_tracker_bytes = 256 * 1024 * 1024 }
    def configure
      yield configuration
      nil
    end

    # Changes when the ids of call sites get a new meaning: a visit of blocks must not take a new site for the old one.
    # @api private
    # @return [Integer]
    attr_reader :epoch

    # @api private
    # @return [Symbol] what call sites are sorted by unless somebody says
    def default_figure
      Native.tracks_objects ? :retained_bytes : :live_bytes
    rescue Ractor::Error
      MainRactor.refuse
    end

    private

    # Loaded with the first question for them.
    def call_sites
      return CallSites if defined?(CallSites::LOADED)

      MainRactor.only
      Loader.file("malloc/call_sites")
      CallSites
    end

    # Loaded with the first report.
    def loaded_report
      MainRactor.only
      Loader.need(:Report)
      Report
    end

    # Raises nothing while memintro is disabled, even where the configuration cannot be read, as in another Ractor.
    def default(setting)
      configuration.public_send(setting) unless Brake.on?
    end

    def mean_distance(mode, sample_bytes)
      mean = Arguments.count(:sample_bytes, sample_bytes, least: 1, most: Configuration::MOST_SAMPLE_BYTES,
                                                          optional: true)
      return mean || configuration.sample_bytes if mode == :sampled
      return if mean.nil?

      raise ArgumentError, "sample_bytes is #{mean}, but mode is #{mode.inspect}; it is for mode: :sampled"
    end

    def track_objects(wanted)
      return unless wanted || Native.tracks_objects
      return unless untracked { Native.track_objects(wanted) }.nil?

      raise UnsupportedError, "this Ruby does not tell of its objects; start without objects: true" if wanted
    end

    # A start makes a test allocation, which must be seen even if the caller is not tracked.
    def while_tracked
      Native.untracked_enter
      depth = Native.untracked_leave
      depth.times { Native.untracked_leave }
      yield
    ensure
      depth.times { Native.untracked_enter }
    end

    def track_within(settings, &block)
      unless settings.empty?
        raise ArgumentError, "tracking is on already, with its own settings; leave out #{settings.keys.join(', ')}"
      end

      problem = Native.unseen
      raise NotSeenError, problem if problem

      difference(&block)
    end

    def difference
      before = totals
      yield
      totals - before
    end
  end
end

Memintro.listen_if_asked
