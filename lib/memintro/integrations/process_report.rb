# frozen_string_literal: true

require_relative "../../memintro"
require_relative "../support/defaults"
require_relative "../support/paths"
require_relative "../support/warn_once"

module Memintro
  # The report that a process writes about itself at its end. Used by memintro/autorun. Code for reports to a file or
  # at an interval is loaded with the first such report.
  class ProcessReport
    include WarnOnce

    # Seconds that the last report waits for a report that is being written.
    PATIENCE = 10
    # The variable of the report's file.
    VARIABLE = "MEMINTRO_REPORT"
    private_constant :PATIENCE, :VARIABLE

    class << self
      # @api private
      # @return [ProcessReport]
      attr_accessor :installed
    end

    # See Process.daemon.
    module Daemon
      # @api private
      def daemon(*arguments)
        ProcessReport.installed.become_daemon { super(*arguments) }
      end
    end

    def initialize
      # Settings come from the variables as they are now; later changes by the program have no effect.
      @variables = ENV.select { |name, _| name.start_with?(Defaults::PREFIX) }
      @warned = false
    end

    # @return [nil]
    # @raise [ArgumentError] if one of the variables has a wrong value
    def install
      Memintro.__send__(:read_variables, @variables)
      load_format
      # For `require "memintro"` in a program whose bundle does not contain it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      begin_to_track
      @stream = Defaults::STREAMS[Memintro.setting(:report)]
      # Streams need none of that, in any process.
      aim unless @stream
      repeat if Memintro.setting(:every)
      ProcessReport.installed = self
      at_exit { Memintro.untracked { write_last } }
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

    # The program may lose access to memintro's folders, by chroot or as another user. Text needs no other file. In
    # sampled mode, low memory matters more: where the format cannot be loaded at the end, a raw dump is left, which
    # `memintro report` shows.
    def load_format
      Loader.need(:Report) unless Memintro.setting(:mode) == :sampled || Memintro.setting(:format) == :text
    end

    # A preloaded hook already tracks blocks from the start of the process.
    def begin_to_track
      answer_for_mwrap if Memintro.setting(:compat) == :mwrap
      Native.tracking? ? go_on : Memintro.start
    end

    def go_on
      stop_later if Memintro.setting(:stop_after)
      follow_objects if Memintro.setting(:objects)
      problem = Native.unseen
      raise NotSeenError, problem if problem
    end

    def follow_objects
      Loader.need(:RactorGuard)
      RactorGuard.install
      Native.track_objects(Memintro.setting(:objects))
    end

    def stop_later
      Loader.need(:StopTimer)
      StopTimer.set(Memintro.setting(:stop_after))
    end

    # The program may change its folder and its variables; processes that it starts must still use the same file.
    def aim
      require_relative "../support/output_target"
      given = Memintro.setting(:report)
      @target = OutputTarget.new(given)
      ENV[VARIABLE] = @target.pattern if ENV[VARIABLE] == given
      trouble = OutputTarget.trouble(given.b.gsub("%p", Process.pid.to_s))
      tell_once("#{VARIABLE} is #{given.b}: #{trouble.b}") if trouble
      follow_processes
    end

    def follow_processes
      require_relative "../runtime/after_fork"
      begin_process
      AfterFork.install { begin_process }
      Process.singleton_class.prepend(Daemon)
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
        left = leave_dump
        tell_once(left ? "#{e.message}. `memintro report #{@target.file}` shows what it left instead" : e.message)
      end
      return @target&.release unless written

      Native.dump_at_exit(nil) if @target
    end

    # The hook's dump needs no file of memintro's.
    def leave_dump
      return false unless @target&.replaceable?

      Native.dump(@target.file)
      true
    rescue StandardError
      false
    end

    # Programs that were written for mwrap expect no other output.
    def wanted?
      !(Memintro.setting(:compat) == :mwrap && Memintro.setting(:report).nil?)
    end

    def repeat
      seconds = Memintro.setting(:every)
      Loader.need(:Background)
      @background = Background.start("memintro-report") { |stop| write until stop.wait(seconds) }
    rescue Error => e
      warn_once("process #{Process.pid} will report only at its end: #{e.message}")
    end

    # Writes, and yields an error.
    def try(&complain)
      Memintro.untracked { deliver }
      true
    rescue StandardError, ScriptError, NoMemoryError => e
      complain.call(e)
      false
    end

    def deliver
      return @target.write { |io| render(io) } unless @stream

      bounded(@stream) { |io| render(io) }
    end

    def render(io)
      format = Memintro.setting(:format)
      top = Memintro.setting(:top) || Defaults.top(format)
      by = Memintro.setting(:by)
      Memintro.report(io, format: format, top: top == :all ? nil : top, app_root: Memintro.setting(:app_root),
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
