# frozen_string_literal: true

module Memintro
  # What cannot be done for a program is told on standard error, once, and never raised into it.
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
