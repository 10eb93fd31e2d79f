# frozen_string_literal: true

require "net/http"
require "rbconfig"
require "tempfile"

# Runs a real Puma (Debian's) on a loopback port of its own choice, for as long as a block takes.
class PumaServer
  BOOT_SECONDS = 300
  PATIENCE_SECONDS = 300

  # The reason why there is none here, or nil.
  def self.missing
    @missing ||= [Subprocess.run_ruby(code: "require 'puma'; require 'rack'", requires: []).success?]
    "no Puma and Rack for this Ruby here (Debian's puma)" unless @missing.first
  end

  # @param rackup [String] path of the application
  # @param config [String] text of config/puma.rb
  def self.run(rackup, config: "", env: {}, arguments: [])
    server = new(rackup, config, env, arguments)
    server.wait_until_listening
    yield server
  ensure
    server&.stop
  end

  attr_reader :pid, :status

  def initialize(rackup, config, env, arguments)
    @log = Tempfile.new("memintro-puma")
    @config = Tempfile.new(["puma", ".rb"])
    @config.write(config)
    @config.flush
    command = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-S", "puma", "--bind", "tcp://127.0.0.1:0",
               "--config", @config.path, *arguments, rackup]
    env = { "RACK_ENV" => "production", "RAILS_ENV" => "production", **env }
    @pid = spawn(Subprocess.bare_env.merge(env), *command,
                 out: [@log.path, "a"], err: %i[child out], in: File::NULL, pgroup: true)
  end

  def log = File.read(@log.path, encoding: "UTF-8")

  def lines = log.lines.grep(/MEMORY/).map { |line| line[/MEMORY.*/] }

  def wait_until_listening
    wait("listen", BOOT_SECONDS) { @port = log[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] }
    # A cluster listens before its workers are there; the first answer says that one is.
    wait("answer", BOOT_SECONDS) { get("/boot").code }
  end

  def get(path, **headers)
    Net::HTTP.start("127.0.0.1", @port.to_i, open_timeout: 10, read_timeout: 60) do |http|
      http.get(path, headers.transform_keys(&:to_s))
    end
  end

  # Until the block gives something; fails with the log when that takes too long.
  def wait(what, seconds = PATIENCE_SECONDS)
    due = now + seconds
    loop do
      value = begin
        yield
      rescue SystemCallError, IOError, Net::ReadTimeout
        nil
      end
      return value if value
      raise "Puma ended and did not #{what}\n#{log}" if what != "end" && reaped?
      raise "Puma did not #{what} within #{seconds} s\n#{log}" if now > due

      sleep 0.05
    end
  end

  def signal(name) = Process.kill(name, @pid)
  def url(path = "/") = "http://127.0.0.1:#{@port}#{path}"

  def stop
    return if @status

    signal(:TERM)
    wait("end") { reaped? }
  rescue RuntimeError
    Process.kill(:KILL, -@pid)
    Process.wait(@pid)
    raise unless waits_for_itself?
  end

  private

  # On Ruby 3.3 a Puma may never end after TERM, nor a worker before the master kills it, with nothing of memintro in
  # it: its server thread closes the pipe that the trap handler has just written to, and each waits for the other. (One
  # in 60 alone, one cluster in 30 under load; docs/limits.md.) What logs at intervals goes on meanwhile.
  def waits_for_itself?
    said = log.lines.grep_v(/\A(?:\[\d+\] )?MEMORY /).last.to_s
    RUBY_VERSION >= "3.3" && said.match?(/Gracefully (?:stopping|shutting down)/)
  end

  def reaped?
    found, @status = Process.wait2(@pid, Process::WNOHANG)
    found
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
