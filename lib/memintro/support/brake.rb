# frozen_string_literal: true

module Memintro
  # `MEMINTRO_DISABLE`: the brake of whoever runs the program. With it nothing is tracked, measured or logged, no thread
  # is started and no socket is made; what the program asks for is answered as where nothing is tracked, and nothing is
  # raised. Plain Ruby without the extension: what decides whether anything else is loaded asks it.
  #
  # What takes part begins with `return … if Brake.holds?`, before it checks what it was given: whoever pulls a brake
  # does not want to hear about arguments.
  # @api private
  module Brake
    # The variable.
    VARIABLE = "MEMINTRO_DISABLE"
    # Its values that mean no brake, in any case. All others do: somebody who typed `yes` or `TRUE` meant it. The hook
    # knows the same list (crates/hook/src/init.rs).
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

    # Asks on behalf of what the program wanted, and says once on standard error why nothing comes of it, in this
    # process and those that it forks afterwards.
    #
    # @return [Boolean] as {on?}
    def self.holds?
      return false unless on?

      tell unless @told
      true
    end

    # May be called in a signal handler and in any Ractor.
    def self.tell
      @told = true
      STDERR.write("memintro: #{cause}, so nothing is tracked in process #{Process.pid}, whatever it asks for\n")
    rescue StandardError
      nil # without standard error there is nobody to tell
    end
    private_class_method :tell
  end
end
