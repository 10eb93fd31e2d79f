# frozen_string_literal: true

module Memintro
  # Finds out whether a line that went through one of Ruby's Loggers was written. A Logger raises nothing: its device
  # rescues the error of a full disk or a closed file and warns on standard error, for each line. memintro's lines must
  # not cause such warnings, so while one of them is written, the device's warning is caught here. Warnings about the
  # program's own lines are printed as usual.
  # @api private
  module LogDevice
    # A variable of the fiber: true while a line is written, and then the warning.
    KEY = :memintro_log_device
    private_constant :KEY

    # Prepended to Logger::LogDevice.
    module Warning
      private

      def warn(*messages, **options)
        LogDevice.note(messages) || super
      end
    end

    # @yield writes a line
    # @return [String, nil] the warning; nil if none was seen
    def self.watch
      install unless @installed
      fiber = Thread.current
      fiber[KEY] = true
      yield
      noted = fiber[KEY]
      noted if noted.is_a?(String)
    ensure
      fiber[KEY] = nil
    end

    # @return [Boolean] whether the warning is of a line of ours
    def self.note(messages)
      return false unless Thread.current[KEY]

      message = messages.join(" ")
      # If a log cannot be rotated, it is still written to.
      Thread.current[KEY] = message unless message.start_with?("log shifting")
      true
    end

    # The program may load Logger at any time, or never.
    def self.install
      return unless defined?(::Logger::LogDevice)

      @installed = true
      ::Logger::LogDevice.prepend(Warning)
    end
    private_class_method :install
  end
end
