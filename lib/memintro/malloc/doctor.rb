# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # The state of memintro in its own process: settings, patched slots, allocations that no hook can see, and what
  # would not work here and why. Frozen; `puts Memintro.doctor` is for people, {#to_h} for programs.
  class Doctor
    # These files open this class, which `autoload` loads; required outside of it, they would load it again in a circle.
    require_relative "doctor/examination"
    require_relative "doctor/text"

    include ValueObject

    # Names of the findings, in the order of {#to_h}.
    ATTRIBUTES = %i[memintro ruby platform origin mode hook allocator modules slots left_alone problems notes
                    escapes].freeze

    # @return [String] memintro's version
    attr_reader :memintro
    # @return [String] Ruby's version
    attr_reader :ruby
    # @return [String]
    attr_reader :platform
    # @return [Symbol] how the hook came here: `:preloaded`, `:loaded`, or `:none` if it did not
    attr_reader :origin
    # @return [Symbol] `:off` or `:full`
    attr_reader :mode
    # @return [String, nil] path of the hook
    attr_reader :hook
    # @return [String, nil] path of the library that answers malloc
    attr_reader :allocator
    # @return [Integer] loaded modules in which slots were found; if preloaded, malloc and its like need none, but C++'s
    #   operators and the loader's functions do
    attr_reader :modules
    # @return [Hash{Symbol => Integer}] number of slots that are `:patched`, `:foreign`, `:lost`, `:refused`, and of
    #   modules that are `:malformed`
    attr_reader :slots
    # @return [Array<Hash>] each slot that is not patched: module, symbol, slot, value, state
    attr_reader :left_alone
    # @return [Array<String>] the parts that would not work here, with reasons and advice
    attr_reader :problems
    # @return [Array<String>] reasons why figures may differ from expected ones
    attr_reader :notes
    # @return [Array<String>] allocations that no hook of this kind sees
    attr_reader :escapes

    # Examines this process. Loads the hook to ask it.
    # @return [Doctor]
    def self.examine
      new(**Examination.new.findings)
    end

    # @api private
    def initialize(**findings)
      ATTRIBUTES.each { |name| instance_variable_set(:"@#{name}", findings.fetch(name).freeze) }
      freeze
    end

    # @return [Boolean] whether all of memintro works here
    def healthy?
      problems.empty?
    end

    # @return [String] several lines, for people
    def to_s
      Text.new(self).to_s
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{origin}, #{mode}, #{Units.counted(slots[:patched], 'slot')} of " \
        "#{Units.counted(modules, 'module')} patched, #{left_alone.size} left alone, " \
        "#{Units.counted(problems.size, 'problem')}>"
    end
  end
end
