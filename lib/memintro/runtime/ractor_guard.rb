# frozen_string_literal: true

require_relative "../error"
require_relative "../support/native"

module Memintro
  # Measures for Ractors while objects are followed, on two kinds of Rubies.
  #
  # Keeps a program alive on Rubies that crash when a Ractor begins while anything traces new objects, also by
  # `ObjectSpace.trace_object_allocations`: Ruby 3.1.2 reads the frame of a thread that has none yet. On those, tracking
  # of objects ends when a Ractor begins, and a measurement refuses it.
  #
  # Ruby 3.3 and later tell of no objects any more once they have freed a Ractor: with the Ractor's own list of
  # listeners they forget that others listen (`rb_hook_list_free`), until the next one begins or ends. There, each
  # Ractor gets a finalizer that makes Ruby tell again.
  # @api private
  module RactorGuard
    # 3.1.2 has been seen to crash, 3.1.7 has not.
    FIRST_SOUND_RUBY = [3, 1, 7].freeze

    # 3.3.8 and 3.4.11 have been seen to forget; 3.1 does not.
    FIRST_FORGETFUL_RUBY = [3, 2].freeze

    # In front of `Ractor.new`, where a Ractor's beginning is the danger.
    module Before
      def new(*arguments, **options, &block)
        RactorGuard.make_way
        super
      end
    end

    # Around `Ractor.new`, where its end is.
    module After
      def new(*arguments, **options, &block)
        super.tap { |ractor| RactorGuard.watch(ractor) if Native.hears_of_objects }
      end
    end

    # @return [Boolean] whether this Ruby crashes
    def self.needed?
      before?(FIRST_SOUND_RUBY)
    end

    # @return [Boolean] whether this Ruby forgets its listeners
    def self.forgetful?
      !before?(FIRST_FORGETFUL_RUBY)
    end

    def self.before?(version)
      (RUBY_VERSION.split(".").map(&:to_i) <=> version).negative?
    end
    private_class_method :before?

    # Called before objects are followed; does nothing on a sound Ruby.
    # @return [nil]
    def self.install
      if needed?
        Ractor.singleton_class.prepend(Before) unless Ractor.singleton_class.include?(Before)
      elsif forgetful?
        Ractor.singleton_class.prepend(After) unless Ractor.singleton_class.include?(After)
        # Those that live. One that has ended and was not collected is not found without a walk of the whole heap.
        ::ObjectSpace.each_object(Ractor) { |ractor| watch(ractor) } if Ractor.count > 1
      end
      nil
    end

    # Makes Ruby tell of objects again when this Ractor was freed.
    # @return [nil]
    def self.watch(ractor)
      ::ObjectSpace.define_finalizer(ractor, self) unless ractor.equal?(Ractor.main)
      nil
    end

    # The finalizer. Ruby may call it in any Ractor, and the main one alone can listen.
    # @return [nil]
    def self.call(_id)
      Native.hear_again if Ractor.current.equal?(Ractor.main)
      nil
    end

    # @return [nil]
    # @raise [UnsupportedError] in a measurement of objects, and in a Ractor that began before objects were tracked
    def self.make_way
      return unless Native.hears_of_objects

      if Native.measures_objects || !Ractor.current.equal?(Ractor.main)
        raise UnsupportedError, "Ruby #{RUBY_VERSION} crashes when a Ractor begins while objects are followed; " \
                                "measure with objects: false, start Ractors before, or use Ruby 3.1.7 or later"
      end
      Native.untracked_enter
      begin
        Native.track_objects(false)
      ensure
        Native.untracked_leave
      end
      STDERR.write("memintro: objects are no longer tracked, because a Ractor begins, and Ruby #{RUBY_VERSION} would " \
                   "crash; malloc is still tracked\n")
      nil
    end
  end
end
