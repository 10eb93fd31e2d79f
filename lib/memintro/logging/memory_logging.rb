# frozen_string_literal: true

module Memintro
  # A log of this process's memory for `memintro plot`: a method of {Memintro}.
  module MemoryLogging
    # Writes a line about this process's memory into a log now and every so many seconds, until the process ends or
    # {MemoryLog#stop}; forked children and daemons write lines of their own. A line costs about 0.1 ms, in a thread of
    # its own. `memintro plot` draws these lines.
    #
    #     MEMORY[123]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live_objects: 1.2 Million
    #
    # @param seconds [Numeric] between two lines
    # @param logger [#info, #write, nil] nil: the `rack.logger` that {Middleware} saw last (so none before the first
    #   request, nor without {Middleware}), else Rails' logger, else standard error
    # @param details [Boolean] adds bytes that malloc has handed out (`malloc_live: off` while nothing is tracked; in
    #   sampled mode followed by `(estimate ±0.3 MB)`, the standard error), the number of collections, and the
    #   collector's time since the line before
    # @return [MemoryLog] under `MEMINTRO_DISABLE` one that writes nothing
    # @raise [TypeError, ArgumentError] on wrong arguments
    # @raise [RactorError] in a Ractor that is not the main one
    # @example
    #   log = Memintro.log_every(2, Logger.new("log/memory.log"))
    #   log.stop
    def log_every(seconds = 2, logger = nil, details: false)
      MainRactor.only unless Brake.on?
      Loading.need(:MemoryLog)
      untracked { MemoryLog.new(seconds, logger, details: details) }
    end
  end
end
