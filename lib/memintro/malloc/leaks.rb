# frozen_string_literal: true

require_relative "../error"
require_relative "../support/list"
require_relative "../support/listed_figures"
require_relative "../support/value_object"

module Memintro
  # Blocks of malloc that nothing points to, and what holds the others. Frozen.
  #
  # @example
  #   leaks = Memintro.leaks
  #   leaks.leaked_blocks                 # => 50_000
  #   puts leaks
  class Leaks
    include ValueObject
    include ListedFigures

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[leaked_blocks leaked_bytes indirectly_leaked_blocks indirectly_leaked_bytes undecided_blocks
                    undecided_bytes scanned_blocks scanned_bytes free_bytes allocator basis mode copies searched_bytes
                    search_ms pause_ms garbage_collected verdict notes owners groups].freeze
    # What a block can be found to be.
    VERDICTS = %i[leaked indirectly_leaked undecided anchored free_but_kept].freeze
    # The first member of its JSON.
    HEAD = :memintro_leaks
    # The number of that JSON's layout.
    LAYOUT = 1
    # The list among the figures.
    LISTED = :groups
    # @return [Integer] blocks that nothing points to. Of blocks that point to one another in a circle, one
    attr_reader :leaked_blocks
    # @return [Integer] their bytes
    attr_reader :leaked_bytes
    # @return [Integer] blocks that only leaked blocks point to
    attr_reader :indirectly_leaked_blocks
    # @return [Integer] their bytes
    attr_reader :indirectly_leaked_bytes
    # @return [Integer] blocks that nothing pointed to in one copy of the process, but something in the other; and those
    #   that a register of another thread may hold
    attr_reader :undecided_blocks
    # @return [Integer] their bytes
    attr_reader :undecided_bytes
    # @return [Integer] all blocks that were looked at
    attr_reader :scanned_blocks
    # @return [Integer] their bytes
    attr_reader :scanned_bytes
    # @return [Integer, nil] bytes that malloc has free and keeps; nil where that is not known
    attr_reader :free_bytes
    # @return [Symbol] who answers malloc: `:glibc`, one of those in docs/allocators.md, or `:unknown`
    attr_reader :allocator
    # @return [Symbol] `:chunks`, all blocks of glibc; `:tracked`, those that were followed
    attr_reader :basis
    # @return [Symbol] whether lines are known: `:off`, `:full` or `:sampled`
    attr_reader :mode
    # @return [Integer] how many copies of the process were searched; 0: a core file was
    attr_reader :copies
    # @return [Integer] bytes that the last copy searched
    attr_reader :searched_bytes
    # @return [Float] milliseconds that this took
    attr_reader :search_ms
    # @return [Float] milliseconds for which Ruby stood still, without the collection before
    attr_reader :pause_ms
    # @return [Boolean, nil] whether garbage was collected before; nil: a core file was searched
    attr_reader :garbage_collected
    # @return [Array<String>] sentences: what weighs most, and what to do about it
    attr_reader :verdict
    # @return [Array<String>] what could not be read
    attr_reader :notes
    # @return [Array<Owner>] Ruby objects that own blocks, by class, those with most bytes first; of a core file none
    attr_reader :owners
    # @return [List<Group>] leaked ones first, the largest first; then the others in the order of {VERDICTS}
    attr_reader :groups

    # @api private
    # @param hash [Hash{String, Symbol => Object}] {#to_h}, as the extension has it or as JSON from a stranger
    # @return [Leaks]
    # @raise [LeaksError]
    def self.of_hash(hash)
      hash = hash.transform_keys(&:to_sym)
      groups = Array(hash[:groups]).map { |row| Group.of_hash(row) }
      owners = Array(hash[:owners]).map { |row| Owner.of_hash(row) }
      figures = ATTRIBUTES.to_h { |name| [name, hash[name]] }
      %i[allocator basis mode].each { |name| figures[name] = figures[name].to_s.to_sym }
      %i[notes verdict].each { |name| figures[name] = Array(hash[name]).map(&:to_s).freeze }
      new(**figures, groups: List.new(groups), owners: owners.freeze)
    rescue TypeError, NoMethodError, ArgumentError
      raise LeaksError, "this is no answer of memintro about leaks"
    end

    # @api private
    def initialize(**figures)
      ATTRIBUTES.each { |name| instance_variable_set(:"@#{name}", figures[name]) }
      freeze
    end

    # @return [Boolean] whether anything leaked
    def any?
      leaked_blocks.positive?
    end

    # @return [Hash{Symbol => Object}] all figures, with rows as hashes
    def to_h
      super.merge(owners: owners.map(&:to_h))
    end

    # @return [Boolean] whether what leaked is no more than what most programs lose at their start
    def little? = Native.leaks_view(to_h)[0]

    # @param top [Integer, nil] groups of each verdict; nil: all
    # @return [String] what owns most of what is held, and a line for each call site and size. What leaked comes first,
    #   unless it is little
    def summary(top: 20)
      Native.leaks_summary(to_h, top)
    end

    # @return [Array<Owner>] those of which a reader should know
    def weighty_owners = owners.values_at(*Native.leaks_view(to_h)[2])

    # @return [Array<Symbol>] the verdicts in the order in which they are shown
    def by_weight = Native.leaks_view(to_h)[1].map(&:to_sym)

    # @return [String] the sentences, and the groups
    def to_s
      Native.leaks_text(to_h)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{verdict.first}>"
    end
  end
end

require_relative "leaks/group"
require_relative "leaks/owner"
