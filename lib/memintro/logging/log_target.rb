# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/files"
require_relative "../support/warn_once"
require_relative "log_device"
require_relative "log_pause"

module Memintro
  # Where lines go: to the logger that was given, else to the one of the request or job (`rack.logger`, Sidekiq's), else
  # to Rails', else to standard error. Rack's NullLogger, which Sinatra sets by default, does not count as a logger. If
  # a logger raises, this is reported once on standard error, and nothing is raised. If the file is closed or the disk
  # is full, lines are dropped for some seconds. Lost lines are counted ({LogPause}).
  #
  # @api private
  class LogTarget
    include WarnOnce

    # @param logger [#info, #write, nil]
    # @raise [TypeError] if it has neither method
    def self.check(logger)
      return logger if logger.nil? || logger.respond_to?(:info) || logger.respond_to?(:write)

      raise TypeError, "logger is #{Arguments.shown(logger)}; it must have a method info or write, or be nil"
    end

    # Formatters that leave the time out: of Rails' development log, and of Sidekiq's if the host adds the time.
    WITHOUT_TIME = %w[ActiveSupport::Logger::SimpleFormatter Sidekiq::Logger::Formatters::WithoutTimestamp].freeze
    # A logger that drops all lines.
    NOWHERE = "Rack::NullLogger"
    private_constant :WITHOUT_TIME, :NOWHERE

    @seen = nil

    class << self
      # @return [#info, #write, nil] the logger of the last request, for use outside of requests
      attr_reader :seen

      # @param logger [#info, #write, nil]
      # @return [void]
      def see(logger)
        @seen = logger unless logger.nil? || logger.equal?(@seen) || logger.class.name == NOWHERE
      rescue Ractor::IsolationError
        nil # what belongs to all of the process is the main Ractor's
      end
    end

    # @param logger [#info, #write]
    # @return [Boolean] whether lines get a time there, as far as is known: true for loggers, false for files
    def self.writes_time?(logger)
      return false unless logger.respond_to?(:info)

      !(logger.respond_to?(:formatter) && WITHOUT_TIME.include?(logger.formatter.class.name))
    end

    # @param logger [#info, #write, nil] the one that was given
    def initialize(logger)
      @logger = LogTarget.check(logger)
      @warned = false
      @pause = LogPause.new
    end

    # @param line [String] without a line's end
    # @param at_hand [#info, #write, nil]
    # @return [Boolean] whether it was written
    def write(line, at_hand = nil)
      put(line, logger(at_hand))
    end

    # @param at_hand [#info, #write, nil]
    # @return [#info, #write] where lines go now
    def logger(at_hand = nil)
      at_hand = nil if at_hand && at_hand.class.name == NOWHERE
      @logger || at_hand || rails_logger || $stderr
    end

    # @param line [String] without a line's end
    # @param logger [#info, #write]
    # @return [Boolean] whether it was written
    def put(line, logger)
      carried = @pause.turn
      return false unless carried

      outcome = :lost
      outcome, trouble = attempt(LogPause.mark(line, carried), logger)
      trouble ? complain(trouble) : true
    rescue StandardError => e
      complain("#{e.class}: #{e.message}")
    ensure
      @pause.settle(carried, outcome) if carried
    end

    # Reports the first problem with the log on standard error.
    # @param error [Exception]
    # @return [void]
    def tell_once(error)
      complain("#{error.class}: #{error.message}")
    end

    private

    # @return [Array(Symbol, String)] the outcome for {LogPause}, and why a line is lost
    def attempt(line, logger)
      warning = LogDevice.watch do
        logger.respond_to?(:info) ? logger.info(line) : Files.bounded(logger) { |io| io.write("#{line}\n") }
      end
      warning ? [:stuck, warning] : [:written, nil]
    rescue SystemCallError, IOError => e
      [:stuck, "#{e.class}: #{e.message}"]
    rescue StandardError, ScriptError => e
      [:lost, "#{e.class}: #{e.message}"]
    end

    # @return [false]
    def complain(trouble)
      warn_once("a line is lost, and perhaps others: #{trouble}")
      false
    end

    def rails_logger
      defined?(::Rails) && ::Rails.respond_to?(:logger) ? ::Rails.logger : nil
    end
  end
end
