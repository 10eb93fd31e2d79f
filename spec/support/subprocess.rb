# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "tempfile"
require "timeout"

# Runs programs in child processes: bare, with the hook preloaded, or ready to load the hook themselves.
# Every child has its own process group and a deadline, so that a hang is a failure and never a stuck run.
module Subprocess
  ROOT = File.expand_path("../..", __dir__)
  LIB = File.join(ROOT, "lib")
  EXE = File.join(ROOT, "exe", "memintro")
  HOOK = File.join(LIB, "memintro", "libmemintro_hook.so")
  SCRIPTS = File.join(ROOT, "spec", "fixtures", "scripts")
  # Only against hangs; other work on the machine must not exceed it.
  DEADLINE_SECONDS = 600

  # The result of a child process.
  Result = Struct.new(:stdout, :stderr, :status, keyword_init: true) do
    # The last line of standard output, parsed; fails with both streams when there is none.
    def json
      JSON.parse(stdout.lines.last.to_s, symbolize_names: true)
    rescue JSON::ParserError
      raise "no JSON from the child (#{status.inspect})\n--- stdout\n#{stdout}\n--- stderr\n#{stderr}"
    end

    def success? = status.success?

    # Itself, or an error that shows everything the child said.
    def must_succeed
      return self if success?

      raise "the child failed (#{status.inspect})\n--- stdout\n#{stdout}\n--- stderr\n#{stderr}"
    end
  end

  module_function

  # The environment of a preloaded process.
  def preloaded_env(mode: "full") = { "LD_PRELOAD" => HOOK, "MEMINTRO_MODE" => mode }

  # An environment without a trace of this library, with the hook's path for programs that load it themselves.
  def bare_env
    inherited = ENV.keys.grep(/\AMEMINTRO_/).to_h { |name| [name, nil] }
    # SPEC_RECORDS=table runs any spec with records in that place.
    records = ENV.fetch("SPEC_RECORDS", nil)
    inherited.merge("LD_PRELOAD" => nil, "MEMINTRO_HOOK" => HOOK, "RUBYOPT" => nil, "MEMINTRO_RECORDS" => records)
  end

  # Runs a command. way: :bare, :live (bare; the program loads the hook) or :preloaded.
  def run_command(*command, way: :bare, env: {}, stdin: "", deadline_seconds: DEADLINE_SECONDS, **options)
    env = bare_env.merge(way == :preloaded ? preloaded_env : {}).merge(env)
    streams = Array.new(3) { Tempfile.new("memintro-spec").tap(&:binmode) }
    File.binwrite(streams[0].path, stdin)
    pid = spawn(env, *command, in: streams[0].path, out: streams[1].path, err: streams[2].path, pgroup: true, **options)
    status = wait_or_kill(pid, deadline_seconds)
    Result.new(stdout: File.binread(streams[1].path).force_encoding("UTF-8"),
               stderr: File.binread(streams[2].path).force_encoding("UTF-8"), status: status)
  ensure
    streams&.each(&:close!)
  end

  # The text of a program for `code:`, which is a file of spec/fixtures/code, in a folder named after its spec.
  def read_program(name) = File.read(File.join(ROOT, "spec/fixtures/code", name))

  # Runs Ruby with this checkout's lib. program: a file of spec/fixtures/scripts, or `code:` given as text.
  def run_ruby(script = nil, *args, code: nil, requires: ["memintro"], flags: [], way: :live, **options)
    command = [RbConfig.ruby, "-I#{LIB}", *flags, *requires.map { |name| "-r#{name}" }]
    command += code ? ["-e", code, "--"] : [File.join(SCRIPTS, script)]
    run_command(*command, *args.map(&:to_s), way: way, **options)
  end

  # Runs `memintro` itself.
  def run_memintro(*args, **options) = run_command(RbConfig.ruby, EXE, *args.map(&:to_s), **options)

  def wait_or_kill(pid, deadline_seconds)
    Timeout.timeout(deadline_seconds) { Process.wait2(pid).last }
  rescue Timeout::Error
    Process.kill(:KILL, -pid)
    Process.wait(pid)
    raise "process #{pid} did not end within #{deadline_seconds} s"
  end
end

RSpec.configure { |config| config.include Subprocess } if defined?(RSpec)
