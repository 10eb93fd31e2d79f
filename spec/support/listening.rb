# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "one_ruby"
require_relative "subprocess"

# Starts programs that listen at a control socket, in a folder of the example's own, and ends them with it.
module Listening
  # The common environment of an example's programs and commands.
  PATIENCE_SECONDS = 300

  # A program that runs beside the example.
  Program = Struct.new(:pid, :output, keyword_init: true) do
    # Waits for its next line.
    def line
      Timeout.timeout(PATIENCE_SECONDS) { output.gets }&.chomp
    end

    def kill(signal = :KILL)
      Process.kill(signal, pid)
    rescue Errno::ESRCH
      nil
    end

    # Waits for its end.
    def wait
      Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }
    end

    def alive?
      Process.wait(pid, Process::WNOHANG).nil?
    rescue Errno::ECHILD
      false
    end
  end

  # The folder of this example's sockets.
  def socket_folder
    @socket_folder ||= Dir.mktmpdir("mi").tap { |folder| File.chmod(0o700, folder) }
  end

  def sockets = Dir.children(socket_folder).grep(/\.sock\z/).sort

  def listening_env(env = {})
    Subprocess.bare_env.merge("MEMINTRO_SOCKET_FOLDER" => socket_folder, "XDG_RUNTIME_DIR" => nil).merge(env)
  end

  # Runs Ruby with memintro; it says "ready" when it is. Its standard output is read by `line`.
  def start_program(code, *arguments, env: {}, requires: ["memintro"], flags: [], wait: true, **options)
    out, theirs = IO.pipe
    command = [RbConfig.ruby, "-I#{Subprocess::LIB}", *flags, *requires.map { |name| "-r#{name}" }, "-e",
               "$stdout.sync = true; #{code}", "--", *arguments.map(&:to_s)]
    pid = spawn(listening_env(env), *command, in: File::NULL, out: theirs, err: File::NULL, pgroup: true, **options)
    theirs.close
    program = Program.new(pid: pid, output: out)
    (@programs ||= []) << program
    raise "the program did not become ready" if wait && program.line != "ready"

    program
  end

  # The same for a program that does one piece of work for each line of its input, and then says a line. Returns it and
  # the end by which work comes.
  def start_worker(code, *arguments, **options)
    theirs, input = IO.pipe
    program = start_program(code, *arguments, wait: false, in: theirs, **options)
    theirs.close
    [program, input]
  end

  # The answer of such a program after one piece of work.
  def serve(program, input)
    input.puts
    program.line
  end

  # Runs the command beside it.
  def memintro(*arguments, env: {}, **options)
    OneRuby::Command.run(*arguments, env: listening_env(env), **options)
  end

  # The folder of the thread of a process that answers.
  def answering_task(pid)
    Dir["/proc/#{pid}/task/*"].find { |task| File.read("#{task}/comm").start_with?("memintro-") }
  end

  def asleep?(task) = File.read("#{task}/status").match?(/^State:\s+S/)

  # How often a thread has gone to sleep or made way so far.
  def switches(task) = File.read("#{task}/status").scan(/ctxt_switches:\s+(\d+)/).flatten.sum(&:to_i)

  def eventually(seconds = PATIENCE_SECONDS)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    until (result = yield)
      raise "it did not happen within #{seconds} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep(0.02)
    end
    result
  end

  # Daemons have left their parent's group; what listens here is an example's.
  def kill_children
    return unless @programs

    Dir[File.join(socket_folder, "**", "*.sock")].each do |path|
      pid = File.basename(path).to_i
      Process.kill(:KILL, pid) unless pid == Process.pid
    rescue Errno::ESRCH
      nil
    end
  end

  def end_programs
    (@programs || []).each do |program|
      begin
        Process.kill(:KILL, -program.pid)
      rescue Errno::ESRCH
        nil
      end
      program.wait if program.alive?
      program.output.close
    end
    kill_children
    FileUtils.rm_rf(socket_folder)
  end
end

RSpec.configure do |config|
  config.include Listening, :listening
  config.after(:each, :listening) { end_programs }
end
