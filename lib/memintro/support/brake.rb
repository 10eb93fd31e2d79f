# frozen_string_literal: true

module Memintro
  # `MEMINTRO_DISABLE`, with which the person who runs the program turns memintro off. If it is set, nothing is tracked,
  # measured or logged, no thread is started and no socket is made; methods return what they return without tracking,
  # and nothing is raised. Plain Ruby without the extension, because it decides whether anything else is loaded.
  #
  # Methods begin with `return … if Brake.holds?`, before they check their arguments, so that wrong arguments do not
  # raise either.
  # @api private
  module Brake
    # The name of the variable.
    VARIABLE = "MEMINTRO_DISABLE"
    # Values that do not turn memintro off, in upper or lower case. All others do, such as `yes` and `TRUE`. The hook
    # has the same list (crates/hook/src/init.rs).
    RELEASED = ["", "0", "false", "no", "off"].freeze

    # @param env [#[]] variables
    # @return [Boolean]
    def self.on?(env = ENV)
      value = env[VARIABLE]
      !value.nil? && !RELEASED.include?(value.strip.downcase)
    rescue ArgumentError
      true # bytes that are no text are none of the words
    end

    # @return [String] such as `MEMINTRO_DISABLE=1 is set`, in one line
    def self.cause
      "#{VARIABLE}=#{ENV.fetch(VARIABLE, '').b.inspect[1..-2]} is set"
    end

    # Returns whether memintro is off. If so, prints once on standard error why the call does nothing, in this process
    # and its later children.
    #
    # @return [Boolean] as {on?}
    def self.holds?
      return false unless on?

      tell unless @reported
      true
    end

    # May be called in a signal handler and in any Ractor.
    def self.tell
      @reported = true
      STDERR.write("memintro: #{cause}, so nothing is tracked in process #{Process.pid}, whatever it asks for\n")
    rescue StandardError
      nil # without standard error there is no reader
    end
    private_class_method :tell
  end
end
