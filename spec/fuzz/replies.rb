# frozen_string_literal: true

require "socket"
require "stringio"
require "tmpdir"
require_relative "target"
require_relative "../support/hostile_listener"
require "memintro/cli"
require "memintro/control/client"

module Fuzz
  # Answers of somebody who may be no process of memintro's, taken by the command's end of the socket: by the client as
  # such, and by each subcommand, which must show nothing that a terminal acts upon.
  #
  # An input is a line with what is asked, then all that comes as an answer.
  class Replies < Target
    # Subcommands that ask, and what an honest process answers to.
    SUBCOMMANDS = {
      %w[ps] => "info", %w[ps --json] => "info", %w[start] => "start", %w[stop] => "stop", %w[mark] => "mark",
      %w[clear --json] => "clear", %w[gc] => "gc", %w[top --json] => "top", %w[top --workers] => "report",
      %w[top] => :text, %w[report] => :text, %w[report --json] => "report", %w[report --workers --json] => "report",
      %w[doctor] => :text, %w[doctor --json] => "doctor", %w[snapshot] => :snapshot, %w[snapshot --json] => :snapshot,
      %w[iseqs] => :snapshot, %w[histogram] => :snapshot, %w[diff --for 0.001] => :snapshot
    }.freeze
    CLIENT = "client"
    # What a terminal acts upon. Stated anew: what decides it must not be what it is held against.
    ACTED_UPON = /[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
    # Ruby's own error for an unchecked value.
    RUBYS = /undefined\ (?:local\ variable\ or\ )?method|no\ implicit\ conversion|can't\ convert|can't\ be\ coerced|
             comparison\ of|key\ not\ found|nil:NilClass|stack\ level|out\ of\ range|wrong\ number\ of\ arguments|
             incompatible\ character|invalid\ byte\ sequence|failed\ to\ allocate|\.rb:\d+:in/x
    TEXT = "memintro 0.1.0: 2 call sites\n  \e[1mlive\e[0m  call site\n 10 B  a.rb:1\n"
    private_constant :SUBCOMMANDS, :CLIENT, :ACTED_UPON, :RUBYS, :TEXT

    private

    def prepare
      @folder = Dir.mktmpdir("mi")
      File.chmod(0o700, @folder)
      @honest = HostileListener.honest(Process.pid)
      @honest[:snapshot] = JSON.parse(Memintro.snapshot(:types).to_json)
      @kept = ENV.to_h.slice("MEMINTRO_SOCKET_FOLDER", "XDG_RUNTIME_DIR")
      ENV.update("MEMINTRO_SOCKET_FOLDER" => @folder, "XDG_RUNTIME_DIR" => nil)
      listen
    end

    def listen
      @path = File.join(@folder, "#{Process.pid}.sock")
      @listener = HostileListener.new(@path) { |_, socket| socket.write(@reply) }
    end

    def finish
      @listener&.close
      ENV.update({ "MEMINTRO_SOCKET_FOLDER" => nil, "XDG_RUNTIME_DIR" => nil }.merge(@kept)) if @kept
      FileUtils.rm_rf(@folder) if @folder
    end

    # Half of them are the client's alone, which takes many more in the same time.
    def make
      return "#{CLIENT} #{command = @mutation.pick(@honest.keys.grep(String))}\n#{reply(command)}" if coin

      words, answer = @mutation.pick(SUBCOMMANDS.to_a)
      "#{words.join(' ')}\n#{reply(answer)}"
    end

    def coin = @mutation.random.rand < 0.5

    def reply(answer)
      return @mutation.mutate(refusal) if @mutation.random.rand < 0.1

      body = answer == :text ? TEXT : JSON.generate(@honest.fetch(answer))
      # An error inside an answer is also found behind a correct header and correct sizes.
      return framed(@mutation.mutate(body), answer) if coin

      @mutation.mutate(framed(body, answer))
    end

    def framed(body, answer)
      sizes = coin ? nil : body.bytesize
      header = { ok: true, memintro: Memintro::VERSION, protocol: 1, program: "app.rb", bytes: sizes,
                 format: answer == :text ? "text" : "json" }
      "#{JSON.generate(header)}\n".b + (sizes ? body.b : pieces(body.b))
    end

    def pieces(body)
      at = @mutation.random.rand(body.bytesize + 1)
      [body.byteslice(0, at), body.byteslice(at..)].reject(&:empty?)
                                                   .map { |part| "#{part.bytesize}\n".b + part }.join + "0\n"
    end

    def refusal
      "#{JSON.generate(ok: false, memintro: '9.9', protocol: 1, error: 'Memintro::BusyError', message: 'busy')}\n"
    end

    def try(input)
      asked, _, @reply = input.b.partition("\n")
      words = asked.split
      words.first == CLIENT ? ask(words.last) : run_subcommand(words)
    end

    def ask(command)
      client = Memintro::Control::Client.new(Process.pid, @path, patience: 2)
      answer = client.ask_json(command)
      raise "the program is no text" unless client.program.nil? || client.program.is_a?(String)
      raise "the answer is no object" unless answer.is_a?(Hash)

      "answers"
    rescue Memintro::ControlError => e
      look_at(e.message)
      raise
    end

    def run_subcommand(words)
      words += [Process.pid.to_s, "--timeout", "2"] unless words.first == "ps"
      out = StringIO.new
      code, said = with_own_errors { Memintro::CLI.start(words, out: out, err: $stderr) }
      look_at(out.string.dup.force_encoding(Encoding::UTF_8))
      look_at(said)
      raise "in Ruby's words: #{said}" if said.match?(RUBYS)
      raise "exit code #{code}: #{said}" unless [0, 1].include?(code)

      code.zero? ? "shown" : "refused"
    end

    def with_own_errors
      before = $stderr
      $stderr = StringIO.new
      [yield, $stderr.string]
    ensure
      $stderr = before
    end

    def look_at(text)
      raise "no UTF-8: #{text.dump[0, 100]}" unless text.valid_encoding?

      found = text[ACTED_UPON] or return
      at = text.index(found)
      raise "#{found.dump} is printed: #{text[[at - 60, 0].max, 80].dump}"
    end
  end
end
