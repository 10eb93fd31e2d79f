# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/stop_timer"
require_relative "../runtime/after_fork"
require_relative "../runtime/ractor_guard"
require_relative "../support/warn_once"
require_relative "../support/paths"
require_relative "../support/output_target"
require_relative "../support/settings"

module Memintro
  # The report that a process writes about itself, at its end and, with --every, at an interval. Used by
  # memintro/autorun.
  class ProcessReport
    include WarnOnce

    # Seconds that the last report waits for a report that is being written.
    PATIENCE = 10
    private_constant :PATIENCE

    # See Process.daemon.
    module Daemon
      # @api private
      def daemon(*arguments)
        ProcessReport.installed.become_daemon { super(*arguments) }
      end
    end

    class << self
      # @api private
      # @return [ProcessReport]
      attr_accessor :installed
    end

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @warned = false
    end

    # @return [nil]
    def install
      load_report unless loads_late?
      # For `require "memintro"` in a program whose bundle does not contain it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      answer_for_mwrap if @configuration.compat == :mwrap
      Memintro.tracking? ? go_on : Memintro.start
      aim
      begin_process
      repeat if @configuration.every
      AfterFork.install { begin_process }
      ProcessReport.installed = self
      Process.singleton_class.prepend(Daemon)
      at_exit { Memintro.untracked { write_last } }
      Native.give_pages_back
      nil
    end

    # Writes a report now. An error is reported once and does not affect the program.
    # @return [Boolean] whether it was written
    def write
      try { |e| tell_once(e.message) }
    end

    # A process and the daemon that it becomes count as one: only the daemon writes a report.
    #
    # @api private
    # @yield becomes a daemon
    # @return [Object] the block's value
    def become_daemon
      @target.heir = @becoming = true
      Native.dump_at_exit(nil)
      yield
    ensure
      @target.heir = @becoming = false
      Memintro.untracked do
        @target.renew
        arm
      end
    end

    private

    # The program may leave the folders of memintro, by chroot or as another user, and exact figures must not show that
    # a file is loaded. In sampled mode, it counts for more to be light: what writes a report is loaded when it is
    # written, and where that is not possible a raw dump is left, which `memintro report` shows.
    def loads_late? = @configuration.mode == :sampled && !@configuration.objects

    def load_report
      Loader.need(:Report)
      Report.prepare(@configuration.format)
    end

    # A preloaded hook already tracks from the start of the process.
    def go_on
      LazyMethods.load_all unless loads_late?
      StopTimer.set(@configuration.stop_after)
      follow_objects if @configuration.objects
      problem = Native.unseen
      raise NotSeenError, problem if problem
    end

    def follow_objects
      RactorGuard.install
      Native.track_objects(@configuration.objects)
    end

    # The program may change its folder and its variables; processes that it starts must still use the same file.
    def aim
      given = @configuration.report
      @target = OutputTarget.new(given)
      variable = Settings[:report].variable
      ENV[variable] = @target.pattern if @target.pattern && ENV[variable] == given
      trouble = given && OutputTarget.trouble(given.b.gsub("%p", Process.pid.to_s))
      tell_once("#{variable} is #{given.b}: #{trouble.b}") if trouble
    end

    def begin_process
      @target.forget
      arm unless @becoming
    end

    # If the process dies, a raw dump is written.
    def arm
      Native.dump_at_exit(@target.replaceable? ? @target.file : nil)
    rescue StandardError => e
      tell_once(e.message)
    end

    def write_last
      @background&.stop(patience: PATIENCE)
      return unless wanted?

      # The report is better than the raw dump, which would replace it in the same file.
      written = try do |e|
        tell_once(leave_dump ? "#{e.message}. `memintro report #{@target.file}` shows what it left instead" : e.message)
      end
      written ? Native.dump_at_exit(nil) : @target.release
    end

    # Writes, and yields an error.
    def try
      Memintro.untracked { @target.write { |io| render(io) } }
      true
    rescue StandardError, ScriptError => e
      yield e
      false
    end

    # What the hook writes needs no file of memintro's.
    def leave_dump
      return false unless @target.replaceable?

      Native.dump(@target.file)
      true
    rescue StandardError
      false
    end

    # Programs that were written for mwrap expect no other output.
    def wanted?
      !(@configuration.compat == :mwrap && @configuration.report.nil?)
    end

    def repeat
      seconds = @configuration.every
      @background = Background.start("memintro-report") { |stop| write until stop.wait(seconds) }
    rescue Error => e
      warn_once("process #{Process.pid} will report only at its end: #{e.message}")
    end

    def render(io)
      load_report
      format = @configuration.format
      top = @configuration.top || Report.default_top(format)
      by = @configuration.by
      Memintro.report(io, format: format, top: top == :all ? nil : top, app_root: @configuration.app_root,
                          **(by ? { by: by } : {}))
    end

    # Loaded at once, so that `require "mwrap"` finds it even if the bundle has a gem of that name.
    def answer_for_mwrap
      $LOAD_PATH.unshift(Paths::COMPAT)
      require File.join(Paths::COMPAT, "mwrap.rb")
    end

    def tell_once(text)
      warn_once("no report of process #{Process.pid}: #{text}")
    end
  end
end
