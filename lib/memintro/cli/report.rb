# frozen_string_literal: true

require_relative "figures"
require_relative "../malloc/call_sites"

module Memintro
  module CLI
    # `memintro report`: shows a saved report or raw dump, or the report of a running process.
    class Report < Figures
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro report [options] FILE…
               memintro report [options] PID|NAME…

        Shows each FILE: a JSON report, or the raw dump of a process that ended by exit! or by a fatal signal. - is
        standard input. With a PID or NAME, shows the report of a running process; --workers adds up the figures of
        the process and of all listening processes below it.

        #{TARGET}
      TEXT

      # Means standard input.
      STANDARD_INPUT = "-"

      # @param words [Array<String>] files, or PIDs and names
      # @return [Integer]
      def run(words)
        raise UsageError, "give one FILE to show, or the PID or NAME of a process (memintro ps)" if words.empty?

        files, processes = words.partition { |word| file?(word) }
        return show(files) if processes.empty?
        unless files.empty?
          raise UsageError, "#{files.first} is a file, and #{processes.first} is not: give files alone, or processes"
        end

        figures(targets(words), default_top: 20)
      end

      private

      # An operand means a process if it cannot be a path, or if there is no such file.
      def file?(word)
        word == STANDARD_INPUT || File.exist?(word) || word.include?("/") || word.match?(/\.(?:json|txt|dump)\z/)
      end

      def request(top)
        ["report", { top: top, by: given[:by] }]
      end

      # If one cannot be shown, the others still are.
      def show(files)
        require_relative "../../memintro"
        failures = files.each_with_index.count do |file, index|
          snapshot = read(file)
          @out.puts if index.positive? && choices[:format] == :text
          Memintro::Report.write(snapshot, @out, **choices)
          false
        rescue Failure => e
          raise if files.size == 1

          complain(e)
        end
        failures.zero? ? 0 : 1
      end

      def read(file)
        return read_standard_input if file == STANDARD_INPUT

        CallSites::Reader.read(file)
      rescue Errno::ENOENT, Errno::EACCES, Errno::EISDIR => e
        raise Failure, "#{file}: #{e.message.sub(/ @ .*/m, '')}"
      rescue DumpError => e
        raise Failure, "#{file}: #{e.message}"
      end

      # A dump is read from a file.
      def read_standard_input
        require "tempfile"
        Tempfile.create("memintro") do |copy|
          IO.copy_stream($stdin, copy.binmode)
          copy.close
          CallSites::Reader.read(copy.path)
        rescue DumpError => e
          raise Failure, "standard input: #{e.message.gsub(copy.path, 'it')}"
        end
      end

      def choices
        configured = Memintro.configuration.to_h.slice(*SETTINGS).merge(given)
        configured[:format] = :json if json?
        top = configured.delete(:top)
        top = Memintro::Report.default_top(configured[:format]) if top.nil?
        { **configured, top: top == :all ? nil : top }
      end
    end
  end
end
