# frozen_string_literal: true

require_relative "work_measurement"

module Memintro
  # One job: its name and its cost. Each field of the line except `time` is a method.
  #
  # @api private
  class JobMeasurement < WorkMeasurement
    # Fields of a line by default, in this order.
    DEFAULT_FIELDS = %i[job queue duration_ms rss_bytes rss_delta_bytes malloc_bytes malloc_calls
                        process_objects process_gc_ms in_flight pid tid jid error].freeze
    # All fields. `time` is added if no logger writes it. `freed_bytes` is not among the defaults, because garbage of
    # earlier work may be freed during any job; nor is `fragmentation_bytes`, which takes milliseconds.
    FIELDS = [*DEFAULT_FIELDS, :freed_bytes, :fragmentation_bytes, :time].freeze

    # @return [String]
    attr_reader :queue

    # @param message [Hash] Sidekiq's
    # @param queue [String]
    def initialize(message, queue)
      super(JOB)
      @message = message
      @queue = queue
      @error = nil
    end

    # @param error [Exception, nil]
    # @return [Boolean] whether this was the first call
    def finish(error)
      @error = error
      end_work
    end

    # @return [String] the job's class; inside of Active Job's wrapper the class that it wraps
    def job
      (@message["display_class"] || @message["wrapped"] || @message["class"]).to_s
    end

    # @return [String]
    def jid
      @message["jid"]
    end

    # @return [String, nil] class of the exception that ended the job
    def error
      @error&.class&.name
    end
  end
end
