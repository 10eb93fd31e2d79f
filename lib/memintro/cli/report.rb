# frozen_string_literal: true

require_relative "figures"

module Memintro
  module CLI
    # `memintro report`: shows what a process left behind, or the whole report of one that runs.
    class Report < Figures
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro report [options] FILE
               memintro report [options] PID|NAME…

        Shows FILE, which is a JSON report, or the raw dump that a process left when exit! or a fatal signal
        ended it; or has a running process report. With --workers the figures of all that listen below it are
        summed up.

        #{TARGET}
      TEXT

      # @param words [Array<String>] a file, or PIDs and names
      # @return [Integer]
      def run(words)
        raise UsageError, "give one FILE to show, or the PID or NAME of a process (memintro ps)" if words.empty?
        return file(words.first) if words.size == 1 && file?(words.first)

        figures(targets(words), default_top: 20)
      end

      private

      # A process is meant by what can be no file's path, or is none.
      def file?(word)
        File.exist?(word) || word.include?("/") || word.match?(/\.(?:json|txt|dump)\z/)
      end

      def request(top)
        ["report", { top: top, by: given[:by] || :live_bytes }]
      end

      def file(path)
        require_relative "../../memintro"
        snapshot = Memintro::Report::Reader.read(path)
        Memintro::Report.write(snapshot, @out, **choices)
        0
      rescue Errno::ENOENT, Errno::EACCES, Errno::EISDIR => e
        raise Failure, "#{path}: #{e.message.sub(/ @ .*/m, '')}"
      rescue DumpError => e
        raise Failure, "#{path}: #{e.message}"
      end

      def choices
        configured = Memintro.configuration.to_h.slice(*SETTINGS).merge(given)
        top = configured.delete(:top)
        top = Memintro::Report.default_top(configured[:format]) if top.nil?
        { **configured, top: top == :all ? nil : top }
      end
    end
  end
end
