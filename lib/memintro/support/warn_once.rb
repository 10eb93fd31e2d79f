# frozen_string_literal: true

module Memintro
  # Reports problems of memintro once on standard error, and never raises them in the program.
  # @api private
  module WarnOnce
    private

    def warn_once(text)
      return if @warned

      @warned = true
      bounded(STDERR) { |io| io.write("memintro: #{text}\n") }
    rescue StandardError, LoadError
      nil # without standard error there is no reader
    end

    # See {Files.bounded}, which is loaded where there is a limit.
    def bounded(io, &block)
      return yield(io) if Process.getrlimit(:FSIZE).first == Process::RLIM_INFINITY

      require_relative "files"
      Files.bounded(io, &block)
    end
  end
end
