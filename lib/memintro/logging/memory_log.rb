# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../runtime/background"
require_relative "log_target"
require_relative "memory_line"
require_relative "memory_reading"
require_relative "../support/untracked_text"

module Memintro
  # Writes a line into a log at regular intervals: the result of {Memintro.log_every}.
  #
  # A thread of memintro's own writes the lines, also in each forked child. If the logger raises, blocks or has a full
  # disk, the rest of the program is not affected.
  class MemoryLog
    prepend UntrackedText

    # More than a thousand lines a second are too many for any log; a day is long enough.
    SECONDS = 0.01..86_400
    private_constant :SECONDS
    # Formats of a line: that of the article that memintro comes from, or those of requests.
    FORMATS = [:article, *MemoryLine::FORMATS].freeze

    # @return [Numeric] seconds between two lines
    attr_reader :seconds
    # @return [Symbol] one of {FORMATS}
    attr_reader :format

    # @api private
    def initialize(seconds, logger, details:, format: :article, fragmentation: false)
      @details = details ? true : false
      @fragmentation = fragmentation ? true : false
      @seconds = seconds
      @format = format
      return if Brake.holds?

      MemoryLog.check_seconds(seconds)
      @format = Arguments.choice(:format, format, FORMATS)
      @line = MemoryLine.new([*MemoryReading::FIELDS.keys, :pid, :time], @format) unless @format == :article
      @target = LogTarget.new(logger)
      # A local variable of the thread: in a forked child, GC time begins again.
      @background = Background.start("memintro-log") { |stop| write_until(stop) }
    end

    # Ends it immediately. A second call does nothing.
    # @return [nil]
    def stop
      @background&.stop
    end

    # @return [Boolean] whether lines are written in this process
    def running?
      @background ? @background.alive? : false
    end

    # @return [Boolean] whether lines have malloc's and GC's figures
    def details?
      @details
    end

    # @return [Boolean] whether lines say how much memory malloc has free
    def fragmentation?
      @fragmentation
    end

    # @return [String]
    def inspect
      "#<Memintro::MemoryLog every #{@seconds} s, #{running? ? 'running' : 'stopped'}>"
    end

    # @api private
    def self.check_seconds(seconds)
      unless seconds.is_a?(Integer) || seconds.is_a?(Float) || seconds.is_a?(Rational)
        raise TypeError, "seconds is #{Arguments.shown(seconds)}; it must be a number of seconds"
      end
      return seconds if SECONDS.cover?(seconds)

      raise ArgumentError, "seconds is #{seconds}; it must be from #{SECONDS.begin} to #{SECONDS.end}"
    end

    private

    def write_until(stop)
      collector = @details ? CollectorTime.new : nil
      loop do
        write(collector)
        break if stop.wait(@seconds)
      end
    end

    # Errors that are not a StandardError must not end the thread either, because that would go unnoticed.
    def write(collector)
      reading = MemoryReading.new(@details, collector&.passed_ms, fragmentation: @fragmentation)
      line = @line ? @line.render(reading) : reading.article
      Background.visible { @target.write(line, LogTarget.seen) }
    rescue Exception => e # rubocop:disable Lint/RescueException
      @target.tell_once(e)
    end

    # The GC time since the last call.
    class CollectorTime
      def initialize
        @before = total
      end

      # @return [Float, nil] milliseconds; nil where Ruby does not measure
      def passed_ms
        now = total
        passed = now && @before && ((now - @before) / 1e6)
        @before = now
        passed
      end

      private

      def total
        GC.total_time if GC.measure_total_time
      end
    end
    private_constant :CollectorTime
  end
end
