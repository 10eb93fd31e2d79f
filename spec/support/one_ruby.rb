# frozen_string_literal: true

require_relative "subprocess"

# One Ruby for all examples of a group: it loads once what their programs need, and forks for each of them. So a program
# finds everything as a Ruby of its own would have it, and takes a few milliseconds to begin in place of sixty.
#
# Not for programs whose beginning is tested, or that look at the whole process: those that are preloaded, get flags or
# variables, tell whole stacks, or run under GC.stress.
class OneRuby
  # How a program has ended, as Process::Status says it.
  Ended = Struct.new(:exitstatus, :termsig) do
    def success? = exitstatus&.zero?
    def to_s = termsig ? "killed by signal #{termsig}" : "exit #{exitstatus}"
  end
  SERVER = File.join(__dir__, "children", "forking.rb")

  # @param requires [Array<String>] what all programs have loaded
  # @param env [Hash] of all programs
  def initialize(requires:, env: {})
    @input, input = IO.pipe.reverse
    output, @output = IO.pipe.reverse
    command = [RbConfig.ruby, "-I#{Subprocess::LIB}", *requires.map { |name| "-r#{name}" }, SERVER]
    @pid = spawn(Subprocess.bare_env.merge(env), *command, in: input, out: output, pgroup: true)
    [input, output].each(&:close)
  end

  # @param env [Hash] of this program alone, besides that of all
  # @return [Subprocess::Result]
  def run(code, arguments: [], chdir: nil, env: {}, deadline_seconds: Subprocess::DEADLINE_SECONDS)
    files = Array.new(2) { Tempfile.new("memintro-spec") }
    @input.puts(JSON.generate(code: code, arguments: arguments, folder: chdir, env: env, out: files[0].path,
                              err: files[1].path))
    ended = Timeout.timeout(deadline_seconds) { @output.gets } or raise "the Ruby that forks for examples has ended"
    out, err = files.map { |file| File.read(file.path, encoding: "UTF-8") }
    Subprocess::Result.new(stdout: out, stderr: err, status: Ended.new(*JSON.parse(ended)))
  rescue Timeout::Error
    close
    raise "the program did not end within #{deadline_seconds} s"
  ensure
    files&.each(&:close!)
  end

  # Ends it, and a program that runs.
  def close
    Process.kill(:KILL, -@pid)
    Process.wait(@pid)
    [@input, @output].each(&:close)
  rescue Errno::ESRCH, Errno::ECHILD, IOError
    nil
  end

  # The `memintro` command: one Ruby has loaded it, and forks for each that is run. A process of its own is for what a
  # forked one cannot have, and for a second one at the same time.
  module Command
    @turn = Mutex.new

    class << self
      # @return [Subprocess::Result]
      def run(*arguments, env: {}, **options)
        forked = run_forked(arguments.map(&:to_s), Subprocess.bare_env.merge(env), **options) if fit?(options)
        forked || Subprocess.run_memintro(*arguments, env: env, **options)
      end

      def close
        @ruby&.close
        @ruby = nil
      end

      private

      def fit?(options) = options.keys.all?(:deadline_seconds)

      def run_forked(arguments, env, **options)
        return unless @turn.try_lock

        begin
          @ruby ||= OneRuby.new(requires: %w[memintro/cli])
          @ruby.run("exit Memintro::CLI.start(ARGV)", arguments: arguments, env: env, **options)
        rescue StandardError
          close
          raise
        ensure
          @turn.unlock
        end
      end
    end
  end

  # For groups of examples.
  module Group
    # The examples' `run_forked` goes to a Ruby that has loaded these; under GC.stress, to one of its own.
    def one_ruby(requires:, env: {})
      if ENV["MEMINTRO_GC_STRESS"] == "1"
        return define_method(:run_forked) do |code, **options|
          run_ruby(code: code, requires: requires, env: env, **options)
        end
      end

      before(:context) { @one_ruby = OneRuby.new(requires: requires, env: env) }
      after(:context) { @one_ruby&.close }
      define_method(:run_forked) { |code, **options| @one_ruby.run(code, **options) }
    end
  end
end

if defined?(RSpec)
  RSpec.configure do |config|
    config.extend OneRuby::Group
    config.after(:suite) { OneRuby::Command.close }
  end
end
