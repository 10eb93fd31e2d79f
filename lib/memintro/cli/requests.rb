# frozen_string_literal: true

require_relative "command"
require_relative "tool"

module Memintro
  module CLI
    # `memintro requests`: checks the command line, then becomes `memintro-tool`, which reads the log.
    class Requests < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro requests [options] LOG...

        Ranks requests by the memory they allocate, from the lines that Memintro::Middleware and the Sidekiq
        middleware write. Requests of one kind are counted together: one Rails action, one job class, or one method
        and path. /posts/4711 and /posts/4712 are both /posts/:id. LOG may be compressed by gzip; - is standard
        input. docs/requests.md explains the figures.

      TEXT
      # What rows can be sorted by.
      FIGURES = %w[bytes calls count p95 max rss].freeze
      # Default number of rows.
      TOP = 20

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("Options:")
          parser.on("--by FIGURE", "bytes (default): allocated bytes; calls: calls of malloc;",
                    "count: requests; p95, max: bytes of one request; rss: growth of RSS",
                    "(default if no line has malloc_bytes)") { |name| @by = figure_named(name) }
          parser.on("-n", "--top N", "number of kinds, or all; default #{TOP}, all in JSON") { |text|
            @top = number(text)
          }
          parser.on("--json", "JSON, for programs") { @json = true }
        end
      end

      # @param files [Array<String>]
      # @return [Integer] never, if all is well
      def run(files)
        raise UsageError, "give a log to read, or - for standard input (memintro requests --help)" if files.empty?

        folder = files.find { |file| File.directory?(file) }
        raise Failure, "#{folder}: is a folder; give the log files in it" if folder

        Tool.become("requests", @json ? "json" : "text", @by.to_s, top.to_s, *files)
      end

      private

      def top
        chosen = @top || (@json ? :all : TOP)
        # More kinds than the tool can have.
        chosen == :all ? Defaults::MOST_SITES : chosen
      end

      def number(text)
        Settings[:top].parse(text, "--top")
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def figure_named(name)
        return name if FIGURES.include?(name)

        raise UsageError, "--by is #{name.inspect}; it must be #{FIGURES.join(' or ')}"
      end
    end
  end
end
