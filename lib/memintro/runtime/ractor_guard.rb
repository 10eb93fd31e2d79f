# frozen_string_literal: true

module Memintro
  # Keeps a program alive on Rubies that crash when a Ractor begins while anybody is told of new objects, also by
  # `ObjectSpace.trace_object_allocations`: Ruby 3.1.2 reads the frame of a thread that has none yet. On those, tracking
  # of objects ends when a Ractor begins, and a measurement refuses it.
  # @api private
  module RactorGuard
    # 3.1.2 has been seen to crash, 3.1.7 has not.
    FIRST_SOUND_RUBY = [3, 1, 7].freeze

    # In front of `Ractor.new`.
    module Before
      def new(*arguments, **options, &block)
        RactorGuard.make_way
        super
      end
    end

    # @return [Boolean] whether this Ruby crashes
    def self.needed?
      (RUBY_VERSION.split(".").map(&:to_i) <=> FIRST_SOUND_RUBY).negative?
    end

    # Called before the first object is followed; does nothing on a sound Ruby, or the second time.
    # @return [nil]
    def self.install
      return if !needed? || Ractor.singleton_class.include?(Before)

      Ractor.singleton_class.prepend(Before)
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
      Memintro.untracked { Native.track_objects(false) }
      STDERR.write("memintro: objects are tracked no more, because a Ractor begins, and Ruby #{RUBY_VERSION} would " \
                   "crash; malloc is still tracked\n")
      nil
    end
  end
end
