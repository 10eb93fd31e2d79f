# frozen_string_literal: true

# A process has one memintro: under `memintro run` it is that one, not the copy that an application requires.
return if defined?(Memintro::LOADED)

require_relative "memintro/version"
require_relative "memintro/error"
require_relative "memintro/support/native"
require_relative "memintro/support/brake"
require_relative "memintro/runtime/loader"
require_relative "memintro/runtime/main_ractor"
require_relative "memintro/process/figures"

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
# What not every program needs is loaded at its first use, which takes some milliseconds once.
#
# @example A leak hunt
#   Memintro.start
#   do_the_work
#   Memintro.mark
#   do_the_work
#   Memintro.report(by: :growth)
module Memintro
  # In braces: Ruby 3.1 keeps the names of a call's keywords in a block of their own, and may lose it.
  Loader.lazy(
    self,
    {
      Account: "process/account", Arguments: "support/arguments", Background: "runtime/background",
      CallSite: "malloc/call_site", Configuration: "support/configuration", Doctor: "malloc/doctor",
      HeapCopy: "heap/heap_copy", HeapDump: "heap/heap_dump", Holder: "heap/holder", HeldPath: "heap/holder",
      Holders: "heap/holder", HeldValue: "heap/holder", LargeObject: "heap/holder",
      GcDelta: "heap/gc_delta", HeapRow: "heap/row", HistogramRow: "heap/row", InternalRow: "heap/row",
      Finding: "hunt/finding", Hunt: "hunt/hunt",
      Fragmentation: "logging/fragmentation", IseqGroup: "heap/row", Iseq: "heap/iseq",
      IseqTotals: "heap/iseq", Leaks: "malloc/leaks", List: "support/list",
      Occupancy: "heap/occupancy", CgroupFiles: "process/cgroup_files", Cgroup: "process/cgroup",
      MemoryLog: "logging/memory_log", Measurement: "measure/measurement", Comparison: "measure/comparison",
      NativeCaller: "malloc/native_caller", Report: "report/report", SiteGroups: "malloc/site_groups",
      StackFrame: "malloc/stack_frame", Stacks: "malloc/stacks", ThreadTotals: "malloc/totals", Totals: "malloc/totals",
      TrackedClasses: "support/tracked_classes", Units: "support/units"
    }
  )
  Loader.lazy_methods(
    {
      Tracking: ["malloc/tracking",
                 %i[start stop track clear totals thread_totals epoch lend_tracking take_back_tracking
                    reclaim_tracking]],
      Configured: ["runtime/configured", %i[configuration configure setting]],
      Reporting: ["report/reporting", %i[report]],
      SiteFigures: ["malloc/site_figures", %i[each_call_site top [] stacks]],
      HeapFigures: ["heap/figures", %i[iseqs each_iseq top_iseqs internals histogram occupancy
                                       occupancy_and_counters], true],
      Measuring: ["measure/measuring", %i[measure compare]],
      Dumping: ["heap/dumping", %i[heap_dump]],
      LeakSearch: ["malloc/leak_search", %i[leaks]],
      Holding: ["heap/holding", %i[holders largest referrers path_to_root retained_size find heap_counts roots
                                   stack_dump]],
      Listen: ["control/listen", %i[listen listen_if_asked]],
      Hunting: ["hunt/hunting", %i[hunt stop_hunting hunting? findings hunt_if_asked]]
    }
  )

  # See memintro/diff.
  class Diff
    extend Lazy
  end

  # See memintro/process/memory.
  class ProcessMemory
    extend Lazy

    # Returns the largest peak RSS of all processes that this process has started and waited for, and of those that
    # these have waited for. Even the shortest process is included. A child is a copy of its parent until it executes
    # another program, so the parent's RSS of that time is included.
    #
    # @return [Integer] bytes; 0 if there was no such process. Costs a microsecond.
    # @example
    #   system("convert", "photo.png", "photo.jpg")
    #   Memintro::ProcessMemory.waited_peak_rss   # => 187_432_960
    def self.waited_peak_rss
      Native.waited_peak_rss
    end
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

  # See memintro/snapshot.
  class Snapshot
    extend Lazy
    extend Lazy::Load
  end

  # See memintro/trend.
  class Trend
    extend Lazy
  end

  extend ProcessFigures

  @epoch = 0

  class << self
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
    #   malloc has free but keeps. Each line then takes an {account} of the process, 0.07 to 0.2 s for each GiB, in the
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

    # Returns what the garbage collector did while the block ran, in all threads. Costs some 10 µs; objects of this
    # method are not counted.
    #
    # @yield
    # @return [GcDelta] with the block's value; an exception of the block passes through
    # @raise [ArgumentError] without a block
    # @raise [RactorError] in a Ractor on Ruby 3.3, until the main one has called it once
    # @example
    #   Memintro.gc_delta { 1_000.times { Object.new } }.objects_allocated   # => 1_000
    def gc_delta(&block)
      raise ArgumentError, "gc_delta needs a block: Memintro.gc_delta { … }" unless block

      Loader.need(:GcDelta)
      GcDelta.during(&block)
    end

    # Removes the socket of {listen} and ends its thread. An answer that is being sent is cut short.
    #
    # @return [Boolean] whether the process listened
    def stop_listening
      defined?(Control::LOADED) ? Control.stop : false
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [Boolean] whether this process listens
    def listening?
      defined?(Control::LOADED) ? Control.listening? : false
    rescue Ractor::Error
      MainRactor.refuse
    end

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
  end

  # A thread may have been killed while it loaded this file: then it is loaded again.
  # @api private
  LOADED = true
end

Memintro.listen_if_asked if ENV.key?("MEMINTRO_LISTEN")
Memintro.hunt_if_asked if ENV.key?("MEMINTRO_HUNT")
