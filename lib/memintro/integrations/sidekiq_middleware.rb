# frozen_string_literal: true

require_relative "../logging/job_measurement"
require_relative "../logging/memory_line_log"

module Memintro
  # Sidekiq server middleware: one line in the log for each job, with its cost in memory.
  # `require "memintro/sidekiq"`.
  #
  #     MEMORY job=Import queue=default duration_ms=812.4 rss_bytes=… malloc_bytes=… … jid=3d1c…
  #
  # The fields are those of {Middleware}, with `job`, `queue` and `jid` instead of the request's. Errors of memintro do
  # not affect the job.
  #
  # @example
  #   Sidekiq.configure_server do |config|
  #     config.server_middleware { |chain| chain.add Memintro::SidekiqMiddleware, one_in: 10 }
  #   end
  class SidekiqMiddleware
    # Sidekiq makes an instance for each job. Turns are counted, and options checked, once for all instances.
    LOGS = {}
    LOCK = Mutex.new
    private_constant :LOGS, :LOCK

    # @param options [Hash] `fields:`, `format:`, `one_in:`, `over:`, `fragmentation:` and `logger:` as for
    #   {Middleware}; by default the logger is Sidekiq's
    # @raise [ArgumentError, TypeError] on a wrong option
    def initialize(options = {})
      return if Brake.holds?

      @log = LOCK.synchronize do
        LOGS[options] ||= MemoryLineLog.new(default: JobMeasurement::DEFAULT_FIELDS,
                                            known: JobMeasurement::FIELDS, **options)
      end
    end

    # @param _worker [Object] the job's instance
    # @param message [Hash] Sidekiq's data of the job
    # @param queue [String]
    # @yield the job
    # @return [Object] the block's value
    def call(_worker, message, queue)
      return yield unless @log

      job = JobMeasurement.new(message, queue)
      before = $!
      job.begin_work
      yield
    ensure
      finish(job, $!.equal?(before) ? nil : $!) if job
    end

    private

    def finish(job, error)
      job.finish(error)
      @log.write(job, defined?(::Sidekiq.logger) ? ::Sidekiq.logger : nil)
    rescue StandardError => e
      @log.target.tell_once(e)
    end
  end
end
