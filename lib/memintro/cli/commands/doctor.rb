# frozen_string_literal: true

require_relative "../remote"

module Memintro
  module CLI
    # `memintro doctor`: checks both ways of tracking on this machine, in processes of its own, or shows the
    # self-check of a running process.
    class Doctor < Remote
      # The name of the command.
      NAME = "doctor"
      # Its purpose, for the list of commands.
      SUMMARY = "check what works on this machine"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro doctor
               memintro doctor [options] PID|NAME…

        Checks both ways to track on this machine: starts and stops tracking in its own process, and runs a Ruby with
        the hook preloaded. Prints what works, what does not, and why. The exit status is 1 if something does not
        work. With a PID or NAME, prints what a running process reports about itself.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "doctor"

      # @param words [Array<String>] none, or PIDs and names
      # @return [Integer]
      def run(words)
        return here if words.empty?

        over_all(targets(words)) do |listener|
          next answer(listener) if json?

          @out.puts("#{who(listener)}:") if words.size > 1 || @workers
          text(client(listener), COMMAND, {})
        end
      end

      private

      def arguments
        { format: :json }
      end

      def here
        require_relative "../../../memintro"
        live = attempt { track_here }
        findings = @findings || Memintro.doctor
        preloaded = attempt { preload }
        @out.puts(findings.to_s, "", "start in a running process: #{live || 'works'}",
                  "memintro run: #{preloaded || 'works'}")
        live || preloaded || !findings.healthy? ? 1 : 0
      end

      # @return [String, nil] the error
      def attempt
        yield
        nil
      rescue Error, Failure => e
        "does not work: #{e.message}"
      end

      def track_here
        raise Failure, Brake.cause if Brake.on?

        Memintro.start
        @findings = Memintro.doctor
      ensure
        Memintro.stop if Memintro.tracking?
      end

      PROBE = "exit(defined?(Memintro.start) && Memintro.preloaded? && Memintro.tracking? && " \
              "Memintro.totals.allocations.positive?)"
      private_constant :PROBE

      def preload
        require "rbconfig"
        require_relative "../launch"
        raise Failure, Brake.cause if Brake.on?

        launch = Launch.new(report: File::NULL).check
        preload = Paths.before(launch.hook, ENV["LD_PRELOAD"], ":")
        variables = { **launch.settings, "LD_PRELOAD" => preload, "RUBYOPT" => launch.require_flag }
        return if system(variables, RbConfig.ruby, "-e", PROBE, out: File::NULL)

        raise Failure, "a preloaded Ruby (#{RbConfig.ruby}) did not track its allocations"
      end
    end
  end
end
