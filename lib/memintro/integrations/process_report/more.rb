# frozen_string_literal: true

module Memintro
  class ProcessReport
    # What a {ProcessReport} is extended with that goes to a file, or whose settings are not the usual ones.
    module More
      # Seconds that the last report waits for a report that is being written.
      PATIENCE = 10
      # The variable of the report's file.
      VARIABLE = "MEMINTRO_REPORT"
      private_constant :PATIENCE, :VARIABLE

      # See Process.daemon.
      module Daemon
        # @api private
        def daemon(*arguments)
          ProcessReport.installed.become_daemon { super(*arguments) }
        end
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
        untracked do
          @target.renew
          arm
        end
      end

      private

      def begin_to_track
        answer_for_mwrap if setting(:compat) == :mwrap
        Memintro.tracking? ? go_on : Memintro.start
      end

      # The program may leave the folders of memintro, by chroot or as another user. The text of a report needs no
      # file. In sampled mode, it counts for more to be light: what writes another report is loaded when it is written,
      # and where that is not possible a raw dump is left, which `memintro report` shows.
      def loads_late?
        setting(:mode) == :sampled || setting(:format) == :text
      end

      def load_report
        Loader.need(:Report)
        LazyMethods.load(:Tracking)
      end

      def go_on
        stop_later if setting(:stop_after)
        follow_objects
        problem = Native.unseen
        raise NotSeenError, problem if problem
      end

      def stop_later
        Loader.file("runtime/stop_timer")
        StopTimer.set(setting(:stop_after))
      end

      # The program may change its folder and its variables; processes that it starts must still use the same file.
      def aim
        require_relative "../../support/output_target"
        given = setting(:report)
        @target = OutputTarget.new(given)
        ENV[VARIABLE] = @target.pattern if ENV[VARIABLE] == given
        trouble = OutputTarget.trouble(given.b.gsub("%p", Process.pid.to_s))
        tell_once("#{VARIABLE} is #{given.b}: #{trouble.b}") if trouble
        follow_processes
      end

      def follow_processes
        require_relative "../../runtime/after_fork"
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
        written ? Native.dump_at_exit(nil) : @target&.release
      end

      # What the hook writes needs no file of memintro's.
      def leave_dump
        return false unless @target&.replaceable?

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

      def deliver
        @stream ? super : @target.write { |io| render(io) }
      end

      def render_with_all(io)
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
    end
  end
end
