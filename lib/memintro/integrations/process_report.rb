# frozen_string_literal: true

require_relative "../report/reporting"
require_relative "../runtime/configured"
require_relative "../runtime/loader"
require_relative "../runtime/after_fork"
require_relative "../support/warn_once"
require_relative "../support/paths"
require_relative "../support/output_target"

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

    # The variable of the report's file.
    VARIABLE = "MEMINTRO_REPORT"
    private_constant :VARIABLE

    # @raise [ArgumentError] if one of the variables has a wrong value
    def initialize
      LazyMethods.load(:Configured)
      LazyMethods.load(:Reporting)
      Memintro.__send__(:read_variables)
      @warned = false
    end

    # @return [nil]
    def install
      load_report unless loads_late?
      # For `require "memintro"` in a program whose bundle does not contain it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      answer_for_mwrap if setting(:compat) == :mwrap
      Memintro.tracking? ? go_on : Memintro.start
      aim
      begin_process
      repeat if setting(:every)
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

    def setting(name) = Memintro.setting(name)

    # The program may leave the folders of memintro, by chroot or as another user. The text of a report needs no file,
    # unless it tells of objects or stacks. In sampled mode, it counts for more to be light: what writes another report
    # is loaded when it is written, and where that is not possible a raw dump is left, which `memintro report` shows.
    def loads_late?
      !setting(:objects) && (setting(:mode) == :sampled || (setting(:format) == :text && setting(:stack_depth) == 1))
    end

    def load_report
      Loader.need(:Report)
      Loader.file("malloc/call_sites")
      LazyMethods.load(:Tracking)
      Report.prepare(setting(:format))
    end

    # A preloaded hook already tracks from the start of the process.
    def go_on
      stop_later if setting(:stop_after)
      follow_objects if setting(:objects)
      problem = Native.unseen
      raise NotSeenError, problem if problem
    end

    def stop_later
      Loader.file("runtime/stop_timer")
      StopTimer.set(setting(:stop_after))
    end

    def follow_objects
      LazyMethods.load_all
      Loader.file("runtime/ractor_guard")
      RactorGuard.install
      Native.track_objects(setting(:objects))
    end

    # The program may change its folder and its variables; processes that it starts must still use the same file.
    def aim
      given = setting(:report)
      @target = OutputTarget.new(given)
      ENV[VARIABLE] = @target.pattern if @target.pattern && ENV[VARIABLE] == given
      trouble = given && OutputTarget.trouble(given.b.gsub("%p", Process.pid.to_s))
      tell_once("#{VARIABLE} is #{given.b}: #{trouble.b}") if trouble
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
      !(setting(:compat) == :mwrap && setting(:report).nil?)
    end

    def repeat
      seconds = setting(:every)
      @background = Background.start("memintro-report") { |stop| write until stop.wait(seconds) }
    rescue Error => e
      warn_once("process #{Process.pid} will report only at its end: #{e.message}")
    end

    def render(io)
      format = setting(:format)
      top = setting(:top) || Defaults.top(format)
      by = setting(:by)
      Memintro.report(io, format: format, top: top == :all ? nil : top, app_root: setting(:app_root),
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
