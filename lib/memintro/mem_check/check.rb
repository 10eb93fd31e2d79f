# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../error"
require_relative "../support/brake"
require_relative "baseline"
require_relative "followed_run"
require_relative "outputs"
require_relative "suppressions"
require_relative "valgrind_run"
require_relative "check_result"

module Memintro
  module MemCheck
    # Runs the command of the tests, and reports the findings.
    # @api private
    class Check
      # The exit status if there is no verdict, and the tests passed.
      NO_VERDICT = 4

      # @param config [Configuration]
      def initialize(config)
        @config = config
      end

      # @yieldparam environment [Hash{String => String, nil}] for the command
      # @yieldparam prefix [String] beginning of the command line
      # @yieldreturn [Process::Status]
      # @return [Integer] the exit status: that of the tests if they failed
      def run(&command)
        suppressions = Suppressions.read(@config.suppressions)
        accepted = Baseline.new(@config.baseline).accepted
        if Brake.on?
          @config.output.puts "mem_check: nothing was checked, because MEMINTRO_DISABLE is set"
          return exit_status(command.call({}, ""))
        end
        ended, found, trouble = run_tests(&command)
        status = exit_status(ended)
        judge(status, found, trouble, suppressions, accepted)
      rescue Error => e
        @config.output.puts "mem_check: no verdict: #{e.message}"
        status.to_i.zero? ? NO_VERDICT : status
      end

      private

      def run_tests
        run = (@config.backend == :valgrind ? ValgrindRun : FollowedRun).new(@config)
        Dir.mktmpdir("memintro-check-") do |folder|
          status = yield(run.environment(folder), run.prefix(folder))
          begin
            [status, run.read(folder, status), nil]
          rescue Error => e
            [status, run.found, e.message]
          end
        end
      end

      def judge(status, found, trouble, suppressions, accepted)
        suppressed, left = found.findings.partition { |one| suppressions.matching(one) }
        known, fresh = left.partition { |one| accepted.key?(one.fingerprint) }
        if @config.update_baseline && @config.baseline && trouble.nil?
          Baseline.new(@config.baseline).write(left)
          known = left
          fresh = []
        end
        gone = accepted.size - known.map(&:fingerprint).uniq.size
        verdict = CheckResult.new(config: @config, status: status, found: found, fresh: fresh, known: known.size,
                                  suppressed: suppressed.size, gone: [gone, 0].max, trouble: trouble)
        @config.output.puts verdict.lines
        Outputs.write(@config, fresh, trouble: trouble)
        return status unless status.zero?
        return @config.exit_status unless fresh.empty?

        trouble ? NO_VERDICT : 0
      end

      # The status in the form of a shell.
      def exit_status(status)
        return 127 if status.nil?

        status.exitstatus || (128 + status.termsig.to_i)
      end
    end
  end
end
