# frozen_string_literal: true

module Memintro
  # Colour for terminals, and plain text for everything else.
  class Style
    # @param io [#write]
    # @param env [#[]] variables
    # @return [Style]
    def self.for(io, env = ENV)
      new(colour?(io, env))
    end

    # @param io [#write]
    # @param env [#[]] variables; see https://no-color.org
    # @return [Boolean]
    def self.colour?(io, env = ENV)
      plain = env["NO_COLOR"].to_s != "" || env["TERM"] == "dumb"
      !plain && io.respond_to?(:tty?) && io.tty? ? true : false
    rescue IOError
      false
    end

    # @param colour [Boolean]
    def initialize(colour)
      @colour = colour
    end

    # @return [String]
    def bold(text)
      dress(1, text)
    end

    # @return [String]
    def dim(text)
      dress(2, text)
    end

    # @return [String]
    def warn(text)
      dress(33, text)
    end

    private

    def dress(code, text)
      @colour ? "\e[#{code}m#{text}\e[0m" : text
    end
  end
end
