# frozen_string_literal: true

require "socket"
require "tmpdir"
require_relative "target"
require "memintro/control/client"

module Fuzz
  # Answers of somebody who may be no process of memintro's, taken by the command's end of the socket.
  class Replies < Target
    INFO = { pid: 7, ppid: 1, name: "shop", program: "app.rb", ruby: "3.1.7", memintro: Memintro::VERSION,
             tracking: true, mode: "full", preloaded: false, rss_bytes: 117_846_016, since: "2026-01-01T12:00:00Z",
             commands: %w[info top] }.freeze
    private_constant :INFO

    private

    def prepare
      @folder = Dir.mktmpdir("mi")
      @path = File.join(@folder, "7.sock")
      listener = UNIXServer.new(@path)
      @server = Thread.new { loop { serve(listener.accept) } }
      @server.report_on_exception = false
    end

    def finish
      @server&.kill&.join
      FileUtils.rm_rf(@folder) if @folder
    end

    def serve(socket)
      socket.gets
      socket.write(@reply)
    rescue SystemCallError, IOError
      nil # the client has heard enough
    ensure
      socket.close
    end

    def make
      @mutation.of(@mutation.pick([whole("#{JSON.generate(INFO)}\n"), pieces(%w[abc defgh]), refusal, whole("[]")]))
    end

    def header(**more)
      "#{JSON.generate(ok: true, memintro: Memintro::VERSION, protocol: 1, program: 'app.rb', format: :json, **more)}\n"
    end

    def whole(text) = header(bytes: text.bytesize) + text
    def pieces(texts) = header(bytes: nil) + texts.map { |text| "#{text.bytesize}\n#{text}" }.join + "0\n"

    def refusal
      "#{JSON.generate(ok: false, memintro: '9.9', protocol: 1, error: 'Memintro::BusyError', message: 'busy')}\n"
    end

    def try(input)
      @reply = input
      client = Memintro::Control::Client.new(Process.pid, @path, patience: 2)
      text = client.ask_json("info")
      raise "the program is no text" unless client.program.nil? || client.program.is_a?(String)

      text.is_a?(Hash) ? "objects" : "other values"
    end
  end
end
