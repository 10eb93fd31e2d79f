# frozen_string_literal: true

# A process has one memintro: under `memintro run` it is that one, not the copy that an application requires.
return if defined?(Memintro::LOADED)

require_relative "memintro/version"
require_relative "memintro/error"
require_relative "memintro/support/native"
require_relative "memintro/support/brake"
require_relative "memintro/runtime/loader"
require_relative "memintro/runtime/main_ractor"
# The methods of Memintro.
require_relative "memintro/control/listen"
require_relative "memintro/heap/dumping"
require_relative "memintro/heap/figures"
require_relative "memintro/heap/holding"
require_relative "memintro/hunt/hunting"
require_relative "memintro/malloc/leak_search"
require_relative "memintro/malloc/site_figures"
require_relative "memintro/malloc/tracking"
require_relative "memintro/measure/measuring"
require_relative "memintro/process/figures"
require_relative "memintro/report/reporting"
require_relative "memintro/runtime/configured"
# What works in every Ractor: Ruby loads nothing there.
require_relative "memintro/heap/gc_delta"
require_relative "memintro/process/cgroup_files"
require_relative "memintro/process/memory"

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
# What not every program needs is loaded at its first use, which takes some milliseconds once; {eager_load} loads all.
# Signal handlers and other Ractors cannot load a class that the program names, such as {Trend}.
#
# @example A leak hunt
#   Memintro.start
#   do_the_work
#   Memintro.mark
#   do_the_work
#   Memintro.report(by: :growth)
module Memintro
  # Each is a file that says what its methods do.
  extend Tracking
  extend Configured
  extend Reporting
  extend SiteFigures
  extend ProcessFigures
  extend HeapFigures
  extend Holding
  extend Dumping
  extend LeakSearch
  extend Measuring
  extend Listen
  extend Hunting

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

    # Loads all files of memintro that are otherwise loaded at their first use, in some 60 ms and 6 MB. Call it before
    # what makes loading impossible or costly: chroot, a limit of open files, signal handlers that name classes such as
    # {RSSSampler}, and the fork of Puma's or Unicorn's workers, which then share it.
    #
    # @return [nil]
    # @raise [Error] if a file cannot be loaded
    # @raise [RactorError] in a Ractor other than the main one
    # @example In config/puma.rb
    #   before_fork { Memintro.eager_load }
    def eager_load
      MainRactor.only
      # A measurement is tried while its file is loaded, and asks for settings.
      Loader.need(:Configuration)
      Loader.need(*Loader::FILES.keys)
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
      MainRactor.only
      Loader.need(:Snapshot, :Diff)
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
    # @example
    #   Memintro.gc_delta { 1_000.times { Object.new } }.objects_allocated   # => 1_000
    def gc_delta(&block)
      raise ArgumentError, "gc_delta needs a block: Memintro.gc_delta { … }" unless block

      GcDelta.during(&block)
    end

    # Removes the socket of {listen} and ends its thread. An answer that is being sent is cut short.
    #
    # @return [Boolean] whether the process listened
    def stop_listening
      defined?(Control.stop) ? Control.stop : false
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [Boolean] whether this process listens
    def listening?
      defined?(Control.listening?) ? Control.listening? : false
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
  end

  # A thread may have been killed while it loaded this file: then it is loaded again.
  # @api private
  LOADED = true
end

Memintro.listen_if_asked if ENV.key?("MEMINTRO_LISTEN")
Memintro.hunt_if_asked if ENV.key?("MEMINTRO_HUNT")
