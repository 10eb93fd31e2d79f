# frozen_string_literal: true

module Memintro
  # Classes that programs name themselves, but few programs need: there from the start, and loaded when one of their
  # objects is made, or a constant in them is named. An `autoload` would do, but Ruby refuses it in signal handlers and
  # in Ractors, in words that nobody understands. In signal handlers this works; in Ractors it says what to do.
  #
  # A class that is loaded has a constant WHOLE.
  # @api private
  module Late
    # The classes.
    NAMES = %i[Diff Sampler Snapshot Trend].freeze

    # {Snapshot.load}, until Snapshot's own is there.
    module Load
      # @return [Snapshot]
      def load(...)
        Late.whole(self)
        # This one is behind the loaded one.
        public_send(:load, ...)
      end
    end

    # @param klass [Class]
    # @return [nil]
    # @raise [RactorError] in a Ractor other than the main one
    def self.whole(klass)
      return if klass.const_defined?(:WHOLE)

      name = NAMES.find { |each| klass <= Memintro.const_get(each) }
      return Loading.late(name) if Ractor.current.equal?(Loading::MAIN_RACTOR)

      raise RactorError, "Memintro::#{name} is not loaded, and a Ractor cannot load it; in the main Ractor, " \
                              "write require \"memintro/#{name.to_s.downcase}\" before"
    end

    # Named arguments here and below: Ruby 3.4 crashes in half of the Ractors that `super` passes `...` on in.
    def new(*arguments, **options, &block)
      Late.whole(self)
      super
    end

    def inherited(subclass)
      Late.whole(self)
      super
    end

    def const_missing(name)
      return super if const_defined?(:WHOLE)

      Late.whole(self)
      const_get(name)
    end
  end

  # See diff.rb.
  class Diff
    extend Late
  end

  # See sampler.rb.
  class Sampler
    extend Late

    # @raise [RactorError] in a Ractor other than the main one: what it asks is the main one's to answer
    def self.new(*arguments, **options, &block)
      return super if Ractor.current.equal?(Loading::MAIN_RACTOR)

      raise RactorError, "a sampler can be made in the main Ractor only; make it there, and ask Memintro.rss " \
                              "and the like in others"
    end
  end

  # See snapshot.rb.
  class Snapshot
    extend Late
    extend Late::Load
  end

  # See trend.rb.
  class Trend
    extend Late
  end
end
