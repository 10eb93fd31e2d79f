# frozen_string_literal: true

require_relative "../error"

module Memintro
  # Loads files that few programs need at their first use. Each constant in {FILES} is an `autoload` of {Memintro}.
  #
  # Methods call {need} before they name such a constant. It loads for one thread at a time, because the constant of a
  # file that another file requires exists before it is complete; also for signal handlers, and untracked.
  # @api private
  module Loader
    # The files in lib/memintro.
    FILES = {
      Account: "process/account", Advice: "support/advice", Background: "runtime/background",
      CallSite: "malloc/call_site", CallSites: "malloc/call_sites", Comparison: "measure/comparison",
      Configuration: "support/configuration", Diff: "snapshot/diff", Doctor: "malloc/doctor",
      Files: "support/files", Finding: "hunt/finding", Fragmentation: "logging/fragmentation",
      HeapCopy: "heap/heap_copy", HeapDump: "heap/heap_dump", HeapRow: "heap/row", HeapWalks: "heap/walks",
      HeldPath: "heap/holder", HeldValue: "heap/holder", HistogramRow: "heap/row", Holder: "heap/holder",
      Holders: "heap/holder", Hunt: "hunt/hunt", InternalRow: "heap/row", Iseq: "heap/iseq", IseqGroup: "heap/row",
      IseqTotals: "heap/iseq", JsonText: "support/json_text", LargeObject: "heap/holder",
      LeakReading: "malloc/leaks/reading", Leaks: "malloc/leaks", List: "support/list",
      Measurement: "measure/measurement", MemoryLog: "logging/memory_log", NativeCaller: "malloc/native_caller",
      Occupancy: "heap/occupancy", RactorGuard: "runtime/ractor_guard", Report: "report/report",
      RSSSampler: "process/rss_sampler", Settings: "support/settings", SiteGroups: "malloc/site_groups",
      Snapshot: "snapshot/snapshot", StackFrame: "malloc/stack_frame", StopTimer: "runtime/stop_timer",
      Style: "support/style", ThreadTotals: "malloc/totals", Totals: "malloc/totals",
      TrackedClasses: "support/tracked_classes", Trend: "snapshot/trend"
    }.freeze
    # What questions through the control socket, and those of a hunt, need. Loaded where one begins, so that none waits
    # for files: beside two threads that compute, Ruby needs half a second for each file since 3.3.
    QUESTIONS = %i[CallSites Configuration Files HeapCopy HeapWalks Holders LeakReading RactorGuard Report SiteGroups
                   Snapshot Totals].freeze
    # Held while files are loaded.
    TURN = Mutex.new
    # Seconds for another thread to load some small files, on a very busy machine.
    PATIENCE_SECONDS = 10
    private_constant :TURN, :PATIENCE_SECONDS
    @loaded = {}

    # @param names [Array<Symbol>] of {FILES}
    # @return [nil]
    # @raise [Error] if a file cannot be loaded now
    def self.need(*names)
      missing = names.reject { |name| @loaded[name] }
      load(missing) unless missing.empty?
      nil
    rescue ThreadError
      load_apart(missing)
    rescue LoadError, SystemCallError => e
      raise Error, unreadable(e)
    end

    # @param error [LoadError, SystemCallError]
    # @return [String] what to do; Ruby does not say why it cannot load a file
    def self.unreadable(error)
      "a file of memintro cannot be loaded (#{error.message}): no more files may be open (ulimit -n), or the program " \
        "has called chroot or changed its user; call Memintro.eager_load before"
    end

    # @param name [Symbol] of {FILES}
    # @return [Boolean] whether it is there
    def self.loaded?(name) = @loaded.key?(name)

    # A thread that is killed, or whose time is up, goes on until all is loaded: half of a file would stay for others.
    def self.load(names)
      Thread.handle_interrupt(Object => :never) do
        Memintro.untracked { TURN.synchronize { load_all(names) } }
      end
    end
    private_class_method :load

    def self.load_all(names)
      @by = Thread.current
      names.each { |name| Memintro.const_get(name) }
      FILES.each_key { |name| @loaded[name] = true unless Memintro.autoload?(name) }
    ensure
      @by = nil
    end
    private_class_method :load_all

    # A signal handler may take no lock, so another thread loads, unless the handler has interrupted this very loading.
    def self.load_apart(names)
      loader = Thread.new { need(*names) } unless @by.equal?(Thread.current)
      loader&.report_on_exception = false
      return if loader&.join(PATIENCE_SECONDS)

      raise Error, "files of memintro cannot be loaded in this signal handler, which has interrupted their loading; " \
                   "ask again later, or call Memintro.eager_load when the program begins"
    end
    private_class_method :load_apart
  end

  Loader::FILES.each { |name, file| autoload name, File.expand_path("../#{file}.rb", __dir__) }
end
