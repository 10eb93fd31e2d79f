# frozen_string_literal: true

require_relative "../error"
require_relative "../support/paths"

module Memintro
  # Refuses, in words that say what to do, what works in the main Ractor only. Ruby would refuse it too, in words about
  # constants and instance variables that are not the caller's.
  #
  # What takes a microsecond or less lets Ruby refuse and then says it better (`rescue Ractor::Error`), which costs
  # nothing where it works. What takes longer, or would half be done by then, asks before.
  # @api private
  module MainRactor
    # Where memintro's own code is.
    FOLDER = "#{Paths::CODE}/"
    # The file beside it.
    MAIN_FILE = "#{Paths::CODE}.rb"
    [FOLDER, MAIN_FILE].each(&:freeze)
    private_constant :FOLDER, :MAIN_FILE

    # Costs some 60 ns, and no object. A child that was forked in another Ractor has that one as its main one.
    # @return [nil]
    # @raise [RactorError] in a Ractor other than the main one
    def self.only
      refuse unless Ractor.current.equal?(Ractor.main)
    end

    # @raise [RactorError] which names the method of {Memintro} that the program called
    def self.refuse
      raise RactorError, "Memintro.#{called} works in the main Ractor only, and was called in another; call it " \
                              "there, or send the main Ractor a message to do so. Memintro.rss and its like answer " \
                              "in any Ractor"
    end

    # The outermost of the methods that led here from the program: `start` asks for `configuration`.
    def self.called
      own = caller_locations(2).take_while { |frame| own?(frame.path.to_s) }
      names = Memintro.singleton_methods
      own.reverse_each.map { |frame| frame.base_label.to_sym }.find { |name| names.include?(name) }
    end
    private_class_method :called

    def self.own?(path)
      path == MAIN_FILE || path.start_with?(FOLDER)
    end
    private_class_method :own?
  end
end
