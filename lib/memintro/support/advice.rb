# frozen_string_literal: true

module Memintro
  # Decides whether advice names methods or commands: who has called a method can call another one, and who has run the
  # command can run it again.
  #
  # @example
  #   Advice.pick("Memintro.trim", "`memintro trim PID`")   # => "Memintro.trim"
  # @api private
  module Advice
    # Of threads that work for the command.
    KEY = :memintro_names_commands
    private_constant :KEY

    # In the block commands: what it makes is for somebody who has run the command.
    # @return [Object] the block's value
    def self.naming_commands
      thread = Thread.current
      before = thread.thread_variable_get(KEY)
      thread.thread_variable_set(KEY, true)
      yield
    ensure
      thread.thread_variable_set(KEY, before)
    end

    # @return [Boolean] whether advice is for somebody who has run a command
    def self.names_commands? = Thread.current.thread_variable_get(KEY) ? true : false

    # @param methods [String] text that names methods
    # @param commands [String] text that names commands
    # @return [String] one of both
    def self.pick(methods, commands)
      names_commands? ? commands : methods
    end
  end
end
