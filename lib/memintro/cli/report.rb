# frozen_string_literal: true

require_relative "command"

module Memintro
  module CLI
    # `memintro report`: shows what a process left behind.
    class Report < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro report [options] FILE

        Shows FILE, which is a JSON report, or the raw dump that a process left when exit! or a fatal signal ended it.
      TEXT
      # The settings it takes as flags.
      SETTINGS = %i[format top by app_root].freeze

      # @param files [Array<String>] one
      # @return [Integer]
      def run(files)
        raise UsageError, "give one FILE to show (memintro report --help)" unless files.size == 1

        require_relative "../../memintro"
        snapshot = Memintro::Report::Reader.read(files.first)
        Memintro::Report.write(snapshot, @out, **choices)
        0
      rescue Errno::ENOENT, Errno::EACCES, Errno::EISDIR => e
        raise Failure, "#{files.first}: #{e.message.sub(/ @ .*/m, '')}"
      rescue DumpError => e
        raise Failure, "#{files.first}: #{e.message}"
      end

      private

      def choices
        configured = Memintro.configuration.to_h.slice(*SETTINGS).merge(given)
        top = configured.delete(:top)
        top = Memintro::Report.default_top(configured[:format]) if top.nil?
        { **configured, top: top == :all ? nil : top }
      end
    end
  end
end
