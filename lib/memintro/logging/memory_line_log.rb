# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "log_target"
require_relative "memory_line"

module Memintro
  # Decides which requests or jobs get a line, and writes it. Shared by all threads. Only its constructor raises.
  #
  # @api private
  class MemoryLineLog
    # @return [LogTarget]
    attr_reader :target

    # @param fields [Array<Symbol>, nil] fields of the line, in order; nil: `default`, and `time` if the log does not
    #   add it
    # @param format [Symbol] `:logfmt` or `:json`
    # @param one_in [Integer, nil] writes a line for one in this many pieces of work
    # @param over [Integer, nil] writes a line for work that took more bytes; with `one_in:`, for one in that many as
    #   well
    # @param logger [#info, #write, nil]
    # @param fragmentation [Boolean] adds `fragmentation_bytes` to the fields
    # @param default [Array<Symbol>]
    # @param known [Array<Symbol>] all there are
    # @raise [ArgumentError, TypeError]
    def initialize(default:, known:, fields: nil, format: :logfmt, one_in: nil, over: nil, logger: nil,
                   fragmentation: false)
      @one_in = Arguments.count(:one_in, one_in, least: 1, optional: true)
      @over = Arguments.count(:over, over, optional: true)
      if Arguments.flag(:fragmentation, fragmentation)
        default, fields = MemoryLineLog.with_fragmentation(default, fields)
      end
      Arguments.choice(:format, format, MemoryLine::FORMATS)
      @timed = MemoryLine.new(MemoryLineLog.fields(fields, [*default, :time].freeze, known), format)
      # JSON has the time inside the object, where a program finds it.
      @line = fields || format == :json ? @timed : MemoryLine.new(default, format)
      @target = LogTarget.new(logger)
      @turn = 0
    end

    # @return [Array(Array<Symbol>, Array<Symbol>)] both with the field; a wrong `fields` as it is
    def self.with_fragmentation(default, fields)
      more = [:fragmentation_bytes]
      [default | more, fields.is_a?(Array) ? fields | more : fields]
    end

    # @return [Array<Symbol>]
    def self.fields(fields, default, known)
      return default if fields.nil?
      return fields.map { |field| Arguments.choice(:fields, field, known) }.freeze if fields.is_a?(Array)

      raise TypeError, "fields is #{Arguments.shown(fields)}; it must be an Array of names, or nil"
    end

    # @param work [WorkMeasurement] that has ended
    # @param logger_at_hand [#info, #write, nil]
    # @return [void]
    def write(work, logger_at_hand = nil)
      return unless wanted?(work)

      logger = @target.logger(logger_at_hand)
      @target.put(text(work, logger), logger)
    rescue StandardError, ScriptError => e
      @target.tell_once(e)
    end

    # @return [void]
    def tell_once(error) = @target.tell_once(error)

    private

    def text(work, logger)
      Native.untracked_enter
      (LogTarget.writes_time?(logger) ? @line : @timed).render(work)
    ensure
      Native.untracked_leave
    end

    def wanted?(work)
      return true unless @one_in || @over
      return true if @over && (work.malloc_bytes || work.rss_delta_bytes || 0) > @over

      @one_in ? ((@turn += 1) % @one_in).zero? : false
    end
  end
end
