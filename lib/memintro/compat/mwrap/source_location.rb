# frozen_string_literal: true

require_relative "../../support/untracked_text"

module Mwrap
  # One location with its current figures: each method looks the location up again, which takes about 100 ns for each
  # location that exists. After {Mwrap.clear} the figures are 0 until it allocates again.
  class SourceLocation
    prepend Memintro::UntrackedText

    # @api private
    # @param name [String]
    # @return [SourceLocation, nil]
    def self.find(name)
      Memintro.untracked { new(name) if site_named(name) }
    end

    # @api private
    # @param name [String]
    # @return [Memintro::CallSite, nil]
    def self.site_named(name)
      site = Memintro::CallSites.take.find(name)
      site if site && site.name.b == name.b
    rescue Memintro::AmbiguousNameError
      nil
    end

    private_class_method :new

    # @return [String] frozen
    attr_reader :name

    # @api private
    # @param name [String]
    def initialize(name)
      @name = name.dup.freeze
    end

    # Visits the live blocks that were allocated here.
    #
    # @yieldparam size [Integer] bytes
    # @yieldparam generation [Integer] GC.count at the allocation
    # @return [self, Enumerator] an enumerator without a block
    def each
      return enum_for(:each) unless block_given?

      site&.each_block { |size, generation| yield size, generation }
      self
    end

    # @return [Integer] bytes allocated here
    def total
      figure(:total_bytes)
    end

    # @return [Integer]
    def allocations
      figure(:allocations)
    end

    # @return [Integer]
    def frees
      figure(:frees)
    end

    # @return [Float] mean age at free, in GC generations; 0.0 if nothing was given back
    def mean_lifespan
      figure(:mean_lifespan).to_f
    end

    # @return [Integer] greatest age at free, in GC generations
    def max_lifespan
      figure(:max_lifespan)
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{name.size > 100 ? "...#{name[-100..]}" : name}>"
    end

    private

    def site
      Memintro.untracked { self.class.site_named(name) }
    end

    def figure(name)
      found = site
      found ? found.public_send(name) : 0
    end
  end
end
