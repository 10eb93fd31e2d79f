# frozen_string_literal: true

require_relative "../report/short_report"
require_relative "../runtime/rest"
require_relative "../support/defaults"
require_relative "../support/paths"
require_relative "../support/warn_once"

module Memintro
  # The report that a process writes about itself at its end. Used by memintro/autorun, which has loaded nothing else:
  # a report to a stream, with the usual settings, needs no more than this. Files, intervals and the like are {More}'s,
  # and memintro is loaded when the program names it ({Rest}).
  class ProcessReport
    include WarnOnce

    class << self
      # @api private
      # @return [ProcessReport]
      attr_accessor :installed
    end

    # Variables with which memintro does more as soon as it is loaded.
    BEGINNERS = %w[MEMINTRO_LISTEN MEMINTRO_HUNT].freeze
    private_constant :BEGINNERS

    def initialize
      # Settings are those of the variables now, whatever the program makes of these.
      @variables = ENV.select { |name, _| name.start_with?(Defaults::PREFIX) }
      @plain = Defaults.plain(@variables)
      @warned = false
    end

    # @return [nil]
    # @raise [ArgumentError] if one of the variables has a wrong value
    def install
      @plain && begins_alone? ? Rest.wait { go_on_with_all } : load_all
      # For `require "memintro"` in a program whose bundle does not contain it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      @plain ? follow_objects : begin_to_track
      @stream = Defaults::STREAMS[setting(:report)]
      # Streams need nothing of that, in any process.
      load_more && aim unless @stream
      repeat if setting(:every)
      ProcessReport.installed = self
      at_exit { untracked { write_last } }
      nil
    end

    private

    # @return [Object, nil] the program may have configured another one only if all is loaded
    def setting(name) = @plain ? @plain[name] : Memintro.setting(name)

    def untracked
      Native.untracked_enter
      yield
    ensure
      Native.untracked_leave
    end

    # Whether the hook tracks already and nothing else is asked for. What is missing then is said when all is loaded.
    def begins_alone?
      !defined?(Memintro.start) && Native.tracking? && Native.unseen.nil? &&
        BEGINNERS.none? { |name| @variables.key?(name) }
    end

    # A preloaded hook already tracks blocks from the start of the process.
    def follow_objects
      return unless setting(:objects)

      LazyMethods.load_all unless @plain
      require_relative "../runtime/ractor_guard"
      RactorGuard.install
      Native.track_objects(setting(:objects))
    end

    def load_more
      require_relative "process_report/more"
      extend(More)
    end

    def load_all
      require_relative "../../memintro"
      go_on_with_all
      load_report unless loads_late?
    end

    def go_on_with_all
      @plain = nil
      load_more
      LazyMethods.load(:Configured)
      LazyMethods.load(:Reporting)
      LazyMethods.load_all if Native.tracks_objects
      Memintro.__send__(:read_variables, @variables)
    end

    def write_last
      try { |e| tell_once(e.message) }
    end

    # Writes, and yields an error.
    def try(&complain)
      untracked { deliver }
      true
    rescue StandardError, ScriptError, NoMemoryError => e
      complain.call(e)
      false
    end

    def deliver
      bounded(@stream) { |io| render(io) }
    end

    def render(io)
      by = Native.tracks_objects ? :retained_bytes : :live_bytes
      return ShortReport.write(io, by, Defaults::TOP, setting(:app_root), colour?(io)) if @plain

      Rest.load
      render_with_all(io)
    end

    # Only a terminal is worth another file, and no file is worth a report.
    def colour?(io)
      return false unless io.respond_to?(:tty?) && io.tty?

      require_relative "../support/style"
      Style.colour?(io)
    rescue IOError, LoadError
      false
    end

    def tell_once(text)
      warn_once("no report of process #{Process.pid}: #{text}")
    end
  end
end
