# frozen_string_literal: true

require_relative "../error"
require_relative "../support/paths"

module Memintro
  # Raises an error with a clear message when a method that works only in the main Ractor is called in another one.
  # Ruby would raise as well, but its message names constants and instance variables of memintro.
  #
  # A method that takes a microsecond or less rescues `Ractor::Error` and raises the better message, which costs nothing
  # in the main Ractor. A method that takes longer, or that could fail half-way, calls {only} first.
  # @api private
  module MainRactor
    # Folder of memintro's own code.
    FOLDER = "#{Paths::CODE}/"
    # The main file beside it.
    MAIN_FILE = "#{Paths::CODE}.rb"
    [FOLDER, MAIN_FILE].each(&:freeze)
    private_constant :FOLDER, :MAIN_FILE

    # Costs some 60 ns, and makes no object. In a child that was forked in another Ractor, that Ractor is the main one.
    # @return [nil]
    # @raise [RactorError] in a Ractor other than the main one
    def self.only
      refuse unless Ractor.current.equal?(Ractor.main)
    end

    # @param called [Symbol, nil] the method of {Memintro} that the program called
    # @raise [RactorError] which names it
    def self.refuse(called = self.called)
      raise RactorError, "Memintro.#{called} works only in the main Ractor; call it there, or send the main Ractor a " \
                         "message to call it. Memintro.rss, pss, uss and the like work in every Ractor"
    end

    # The caller holds the lock of the only Ractor, so no other Ractor can start during a walk of the heap.
    #
    # @return [nil]
    # @raise [RactorError] if there are several
    def self.alone
      ractors = Ractor.count
      return if ractors == 1

      raise RactorError, "#{ractors} Ractors are alive, and memintro can read the heap only while there is one, " \
                         "because the others would change it; wait until they have ended"
    end

    # The public method that the program called: for example `start`, which itself calls `configuration`.
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
