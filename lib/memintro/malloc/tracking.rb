# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/arguments"
require_relative "../support/brake"
require_relative "../support/defaults"

module Memintro
  # Methods of {Memintro} that start and stop tracking, and that return its sums. {Memintro} is extended with them.
  module Tracking
    # What reads the figures. Loaded at a start in full mode, because the program may read them in a signal handler, or
    # leave the folders of memintro. In sampled mode it counts for more to be light.
    READING = %i[Totals CallSites SiteGroups Report].freeze
    private_constant :READING

    # Starts tracking with empty figures. Takes milliseconds: the malloc functions of every loaded module are
    # redirected, unless the process was preloaded. If the settings are already in force, nothing happens. Another
    # `mode` or `sample_bytes` takes effect at once and keeps what was collected, each block with its weight (with a
    # {stop} in between, nothing is kept). Other limits start again from zero.
    #
    # Settings that are not given are as configured: see {Configuration}, whose settings have the same names.
    #
    # @param settings [Hash{Symbol => Object}]
    # @option settings [Symbol] :mode `:full`, every block; `:sampled`, estimates at a cost that can be left on
    # @option settings [Integer, nil] :sample_bytes of sampled mode: one byte in this many is sampled on average
    # @option settings [Numeric, nil] :stop_after seconds after which tracking stops by itself, in forked children too.
    #   Given again, it counts from then
    # @option settings [Boolean, :sampled, Array<Class, String>] :objects also tracks Ruby objects by the line that made
    #   them ({CallSite#live_objects}, {CallSite#classes}): true, all; an Array of classes and names of classes, only
    #   these and their subclasses. With another value, objects are counted from zero; docs/objects.md has the cost
    # @option settings [Integer, nil] :max_tracker_bytes most bytes that tracking may use; nil: no limit
    # @option settings [Integer, nil] :max_sites most call sites to tell apart, the rest share `(other)`
    # @option settings [Integer] :stack_depth lines of Ruby in a call site: with 2 and more, a call site is a whole
    #   stack ({stacks}, {CallSite#stack}), and {top} has the sums by line; docs/stacks.md has the cost
    # @option settings [Boolean, nil] :native_callers whether some allocations are looked at more closely, for
    #   {CallSite#native_callers}; nil: in full mode. Takes effect at once
    # @return [Boolean] true; false under `MEMINTRO_DISABLE`, where nothing is tracked: see {disabled?}
    # @raise [ArgumentError, TypeError] on a wrong setting
    # @raise [UnsupportedError, DisabledError, ExhaustedError, AllocatorError, NotSeenError, BusyError]
    # @example For a minute, in production
    #   Memintro.start(mode: :sampled, stop_after: 60)
    def start(**settings)
      return false if Brake.holds?

      MainRactor.only
      reclaim_tracking
      settings = in_full(settings)
      mode = Arguments.choice(:mode, settings[:mode], Defaults::MODES.keys)
      settings[:sample_bytes] = mean_distance(mode, settings[:sample_bytes])
      seconds = Arguments.seconds(:stop_after, settings[:stop_after], optional: true)
      numbers = Defaults::HOOK.map { |name| checked_number(name, settings[name]) }
      objects = checked_objects(settings[:objects])
      Loader.need(*READING) if mode == :full
      Native.native_callers(checked_switch(:native_callers, settings[:native_callers]))
      Native.load_hook
      number = Defaults::MODES[mode]
      start_untracked(objects, seconds) do
        Native.start(number, numbers).tap do
          @objects = objects
          @native_callers = settings[:native_callers]
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
    # @return [Totals] the changes during the block, in all threads; zeros under `MEMINTRO_DISABLE`
    # @raise [ArgumentError, TypeError] without a block, or on a wrong setting
    # @raise [NotSeenError] if another library answers malloc before the hook; and the errors of {start}
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
        Totals.from_native(figures)
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

    # Marks tracking as borrowed by `to` if the block started it. The next explicit start or stop has it to himself,
    # as if it had been off.
    #
    # @api private
    # @param to [Object] the borrower
    # @return [nil]
    def lend_tracking(to)
      before = @epoch
      yield
      # If another thread has started it meanwhile, it belongs to that thread.
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

    # Settings that a start may change without clearing the figures: the tracked objects, and native callers.
    #
    # @return [Hash{Symbol => Object}]
    def changeable
      callers = @native_callers.nil? ? default(:native_callers) : @native_callers
      { objects: Native.tracks_objects ? @objects || default(:objects) || true : false,
        native_callers: callers.nil? ? Native.mode == :full : callers }
    end

    # All settings of a start: those that are given, and others as configured. That of a sampled start is read later.
    def in_full(given)
      unknown = given.keys - Defaults::START
      unless unknown.empty?
        words = unknown.map(&:inspect).join(", ")
        raise ArgumentError, "unknown keyword#{'s' if unknown.size > 1}: #{words}; start takes " \
                             "#{Defaults::START.join(', ')}"
      end

      Defaults::START.to_h { |name| [name, given.fetch(name) { default(name) unless name == :sample_bytes }] }
    end

    # Raises nothing while memintro is disabled, even where the configuration cannot be read.
    def default(name)
      setting(name) unless Brake.on?
    end

    # @param seconds [Numeric, nil] nil: never; a time that was set before ends
    def stop_after(seconds)
      return unless seconds || Loader.loaded?(:StopTimer)

      Loader.need(:StopTimer)
      StopTimer.set(seconds)
    end

    # @return [Integer] 0 for the default
    def checked_number(name, value)
      Arguments.count(name, value, least: Defaults::LEAST.fetch(name, 1), most: Defaults::MOST[name],
                                   optional: Defaults::VALUES[name].nil?) || 0
    end

    def checked_switch(name, wanted)
      return wanted if [true, false, nil].include?(wanted)

      raise ArgumentError, "#{name} is #{Arguments.shown(wanted)}; it must be true, false, or nil"
    end

    def checked_objects(wanted)
      return wanted if [true, false].include?(wanted)

      Loader.need(:TrackedClasses)
      TrackedClasses.checked(:objects, wanted)
    end

    def mean_distance(mode, sample_bytes)
      return sample_bytes.nil? ? setting(:sample_bytes) : sample_bytes if mode == :sampled
      return if sample_bytes.nil?

      checked_number(:sample_bytes, sample_bytes)
      raise ArgumentError, "sample_bytes is #{sample_bytes}, but mode is #{mode.inspect}; it is for mode: :sampled"
    end

    def track_objects(wanted)
      return unless wanted || Native.tracks_objects

      if wanted
        Loader.need(:RactorGuard)
        RactorGuard.install
      end
      return unless Native.track_objects(wanted).nil?

      raise UnsupportedError, "this Ruby does not report new and freed objects; start without objects:" if wanted
    end

    # Ruby's allocations for first calls do not belong to the program.
    def start_untracked(objects, seconds)
      Native.untracked_enter
      begun = yield
      track_objects(objects)
      @epoch += 1 if begun == :ok
      stop_after(seconds) if seconds || begun != :unchanged
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
