# frozen_string_literal: true

module Memintro
  # Reports problems of memintro once on standard error, and never raises them in the program.
  # @api private
  module WarnOnce
    private

    def warn_once(text)
      return if @warned

      @warned = true
      STDERR.write("memintro: #{text}\n")
    rescue StandardError
      nil # without standard error there is nobody to tell
    end
  end
end
