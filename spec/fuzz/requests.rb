# frozen_string_literal: true

require "rbconfig"
require "socket"
require "tmpdir"
require_relative "target"

module Fuzz
  # Requests, asked of a real process. Its answers must be the protocol's, and it must live.
  class Requests < Target
    ARGUMENTS = {
      "info" => {}, "stop" => {}, "mark" => {}, "clear" => {}, "doctor" => {}, "gc" => {},
      "start" => { "mode" => "sampled", "max_sites" => 1000, "sample_bytes" => 4096 },
      "top" => { "n" => 5, "by" => "growth", "older_than_gcs" => 1, "format" => "json",
                 "app_root" => "/", "colour" => true },
      "report" => { "format" => "text", "top" => 3, "by" => "live_bytes" }, "snapshot" => { "parts" => ["types"] },
      "account" => { "ruby" => true },
      "leaks" => { "gc" => false, "confirm" => false, "seconds" => 5 }, "trim" => { "compact" => false },
      "heap_dump" => { "path" => "/dev/null", "redact" => true, "seconds" => 5, "progress" => true },
      "holders" => { "class" => "String", "site" => "a.rb:1", "older_than_gcs" => 1, "top" => 3, "seconds" => 5,
                     "progress" => true, "rendering" => true },
      "hunt" => { "action" => "show", "every" => 60 },
      "vitals" => { "top" => 10, "by" => "live_blocks" }
    }.freeze
    # What Ruby says of a value that was not checked, which tells a user nothing.
    RUBYS = /undefined\ method|no\ implicit\ conversion|can't\ convert|can't\ be\ coerced|comparison\ of|
             key\ not\ found|nil:NilClass|stack\ level|out\ of\ range/x
    LISTENER = <<~RUBY
      require "memintro"
      Memintro.listen
      $kept = Array.new(1000) { |i| "x" * (i + 100) }
      $stdout.puts "ready"
      $stdout.flush
      sleep
    RUBY
    private_constant :ARGUMENTS, :RUBYS, :LISTENER

    private

    def prepare
      @folder = Dir.mktmpdir("mi")
      File.chmod(0o700, @folder)
      reader, writer = IO.pipe
      env = { "MEMINTRO_SOCKET_FOLDER" => @folder, "XDG_RUNTIME_DIR" => nil, "RUBYOPT" => nil }
      @pid = spawn(env, RbConfig.ruby, "-I#{File.expand_path('../../lib', __dir__)}", "-e", LISTENER,
                   in: File::NULL, out: writer)
      writer.close
      raise "the listening process did not start" unless reader.gets == "ready\n"

      @path = Dir[File.join(@folder, "*.sock")].first
    end

    def finish
      return unless @pid

      Process.kill(:KILL, @pid)
      Process.wait(@pid)
      FileUtils.rm_rf(@folder)
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    end

    def make
      command, arguments = @mutation.pick(ARGUMENTS.to_a)
      request = JSON.generate(memintro: Memintro::VERSION, protocol: 1, command: command, arguments: arguments,
                              stream: @mutation.random.rand < 0.5)
      text = @mutation.mutate("#{request}\n")
      text.end_with?("\n") ? text : "#{text}\n"
    end

    def try(input)
      socket = UNIXSocket.new(@path)
      begin
        socket.write(input)
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil # refused before it was read
      end
      answer(socket)
    ensure
      socket&.close
    end

    def answer(socket)
      line = socket.gets("\n", 1 << 20) or raise "no answer"
      header = JSON.parse(line)
      raise "a header that is no object" unless header.is_a?(Hash) && header["protocol"] == 1
      return refusal(header, line) unless header["ok"] == true

      return pieces(socket) unless header["bytes"]

      piece(socket, header["bytes"])
      "answers"
    end

    def refusal(header, line)
      raise "a refusal without a message: #{line}" unless header["message"].is_a?(String) && !header["message"].empty?

      kind = header["error"].to_s
      ours = kind.match?(/\A(Memintro::\w+|TypeError|ArgumentError)\z/) && !header["message"].match?(RUBYS)
      raise "refused in Ruby's words: #{kind}: #{header['message']}" unless ours

      kind
    end

    def piece(socket, size)
      raise "a short answer" unless socket.read(size)&.bytesize == size
    end

    def pieces(socket)
      loop do
        line = socket.gets("\n", 1 << 20) or raise "an answer without an end"
        # An error during an answer replaces the next size.
        return refusal(JSON.parse(line), line) if line.start_with?("{")

        size = Integer(line, 10)
        return "answers" if size.zero?

        piece(socket, size)
      end
    end

    def peak_bytes
      super(@pid)
    rescue SystemCallError
      raise "the process has ended"
    end
  end
end
