# frozen_string_literal: true

require_relative "../runtime/main_ractor"
require_relative "../support/brake"
require_relative "../support/defaults"

module Memintro
  # Methods of {Memintro} that start and stop tracking, and that return its sums. {Memintro} is extended with them when
  # one of them is called first. What returns sums, ends tracking by itself or follows objects is more code than this,
  # and is loaded when it is asked for.
  module Tracking
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
    # @param objects [Boolean, :sampled, Array<Class, String>] also tracks Ruby objects by the line that made them
    #   ({CallSite#live_objects}, {CallSite#classes}): true, all; an Array of classes and names of classes, only these
    #   and their subclasses. With another value, objects are counted from zero; docs/objects.md has the cost
    # @param max_tracker_bytes [Integer, nil] most bytes that tracking may use, at least 4 MiB; nil: as configured, else
    #   no limit
    # @param max_sites [Integer, nil] most call sites to tell apart, the rest share `(other)`; nil: as configured,
    #   else the hook's own limit
    # @param stack_depth [Integer] lines of Ruby in a call site, 1 to 64: with 2 and more, a call site is a whole stack
    #   ({stacks}, {CallSite#stack}), and {top} has the sums by line; docs/stacks.md has the cost
    # @param native_callers [Boolean, nil] whether some allocations are looked at more closely, for
    #   {CallSite#native_callers}; nil: as configured, else in full mode. Takes effect at once
    # @return [Boolean] true; false under `MEMINTRO_DISABLE`, where nothing is tracked: see {disabled?}
    # @raise [ArgumentError, TypeError] on a wrong setting
    # @raise [UnsupportedError, DisabledError, ExhaustedError, AllocatorError, NotSeenError, BusyError]
    # @example For a minute, in production
    #   Memintro.start(mode: :sampled, stop_after: 60)
    def start(mode: default(:mode), sample_bytes: nil, stop_after: default(:stop_after),
              max_tracker_bytes: default(:max_tracker_bytes), max_sites: default(:max_sites),
              objects: default(:objects), stack_depth: default(:stack_depth),
              native_callers: default(:native_callers))
      return false if Brake.holds?

      MainRactor.only
      reclaim_tracking
      mode = checked(:choice, :mode, mode, Defaults::MODES.keys) unless Defaults::MODES.key?(mode)
      mean = mean_distance(mode, sample_bytes)
      seconds = checked(:seconds, :stop_after, stop_after, optional: true)
      bytes = checked(:count, :max_tracker_bytes, max_tracker_bytes, least: Defaults::LEAST_TRACKER_BYTES,
                                                                     optional: true)
      sites = checked(:count, :max_sites, max_sites, least: 1, most: Defaults::MOST_SITES, optional: true)
      objects = checked_objects(objects)
      LazyMethods.load_all if objects
      depth = stack_depth
      depth = checked(:count, :stack_depth, depth, least: 1, most: Defaults::MOST_STACK_DEPTH) unless depth.eql?(1)
      # The program may leave the folders of memintro. In sampled mode it counts for more to be light.
      Loader.need(:Totals) if mode == :full
      Native.native_callers(checked_switch(:native_callers, native_callers))
      Native.load_hook
      number = Defaults::MODES[mode]
      start_untracked(objects, seconds) do
        Native.start(number, sites || 0, bytes || 0, mean || 0, depth).tap do
          @objects = objects
          @native_callers = native_callers
        end
      end
      true
    end

    # Stops tracking and puts back what {start} changed. The figures stay readable until the next start.
    #
    # @return [Totals] the final ones
    # @raise [BusyError]
    def stop
      MainRactor.only
      @lent = nil
      stop_after(nil)
      Native.stop
      totals
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

      reclaim_tracking
      return track_within(settings, &block) if tracking?

      start(**settings)
      begin
        yield
      ensure
        final = stop
      end
      final
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
      untracked do
        figures = Native.totals
        Loader.need(:Totals)
        Totals.of(figures)
      end
    rescue Ractor::Error
      MainRactor.refuse
    end

    # @return [ThreadTotals] of the current thread. Costs about a microsecond.
    def thread_totals
      untracked do
        figures = Native.thread_totals
        Loader.need(:Totals)
        ThreadTotals.new(*figures)
      end
    rescue Ractor::Error
      MainRactor.refuse
    end

    # Changes when the ids of call sites get a new meaning: a visit of blocks must not take a new site for the old one.
    # @api private
    # @return [Integer]
    attr_reader :epoch

    # Tracking that memintro itself needs for a while, if the block starts it. Whoever starts or stops tracking next has
    # it to himself, as if it had been off.
    #
    # @api private
    # @param to [Object] who may take it back
    # @return [nil]
    def lend_tracking(to)
      before = @epoch
      yield
      # If another thread has started it amid this, it is that thread's.
      @lent = to if @epoch == before + 1
      nil
    end

    # Stops what was lent to this one, if it still is.
    # @api private
    # @param from [Object]
    # @return [nil]
    # @raise [BusyError]
    def take_back_tracking(from)
      return unless @lent.equal?(from)

      # In this order: who starts meanwhile finds it lent, and stops it himself before.
      Native.stop
      @lent = nil if @lent.equal?(from)
      nil
    end

    # @api private
    # @return [nil]
    # @raise [BusyError]
    def reclaim_tracking
      return unless @lent

      Native.stop
      @lent = nil
    end

    private

    # What a start may change while the figures stay: which objects are tracked, and whether native callers are found.
    #
    # @return [Hash{Symbol => Object}]
    def changeable
      callers = @native_callers.nil? ? default(:native_callers) : @native_callers
      { objects: Native.tracks_objects ? @objects || default(:objects) || true : false,
        native_callers: callers.nil? ? Native.mode == :full : callers }
    end

    # Raises nothing while memintro is disabled, even where the configuration cannot be read.
    def default(name)
      setting(name) unless Brake.on?
    end

    # @param seconds [Numeric, nil] nil: never; a time that was set before ends
    def stop_after(seconds)
      return unless seconds || defined?(StopTimer)

      Loader.file("runtime/stop_timer")
      StopTimer.set(seconds)
    end

    # What checks arguments is loaded for those that are not the usual ones.
    #
    # @param kind [Symbol] a method of {Arguments}
    # @return [Object, nil] the value; nil where it is nil and may be
    def checked(kind, name, value, *allowed, **limits)
      return if value.nil? && limits[:optional]

      Loader.need(:Arguments)
      Arguments.public_send(kind, name, value, *allowed, **limits)
    end

    def checked_switch(name, wanted)
      return wanted if [true, false, nil].include?(wanted)

      Loader.need(:Arguments)
      raise ArgumentError, "#{name} is #{Arguments.shown(wanted)}; it must be true, false, or nil"
    end

    def checked_objects(wanted)
      return wanted if [true, false].include?(wanted)

      Loader.need(:TrackedClasses)
      TrackedClasses.checked(:objects, wanted)
    end

    def mean_distance(mode, sample_bytes)
      mean = checked(:count, :sample_bytes, sample_bytes, least: 1, most: Defaults::MOST_SAMPLE_BYTES, optional: true)
      return mean || setting(:sample_bytes) if mode == :sampled
      return if mean.nil?

      raise ArgumentError, "sample_bytes is #{mean}, but mode is #{mode.inspect}; it is for mode: :sampled"
    end

    def track_objects(wanted)
      return unless wanted || Native.tracks_objects

      if wanted
        Loader.file("runtime/ractor_guard")
        RactorGuard.install
      end
      return unless Native.track_objects(wanted).nil?

      raise UnsupportedError, "this Ruby does not tell of its objects; start without objects:" if wanted
    end

    # What Ruby allocates for first calls does not belong to the program.
    def start_untracked(objects, seconds)
      Native.untracked_enter
      begun = yield
      track_objects(objects)
      @epoch += 1 if begun == :ok
      stop_after(seconds) if seconds || begun != :unchanged
      # The last call, for every other one brings pages of code back.
      Native.give_pages_back unless begun == :unchanged
    ensure
      Native.untracked_leave
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
