# frozen_string_literal: true

require_relative "../runtime/after_fork"
require_relative "../support/brake"
require_relative "../support/json_text"
require_relative "../support/list"
require_relative "../support/value_object"

module Memintro
  # Defined before its parts, which reopen it and would otherwise make Ruby load this file again.
  class Measurement; end
end

require_relative "measurement_text"
require_relative "notes"

module Memintro
  # The cost of a piece of code: see {Memintro.measure}. Frozen, once the block has ended.
  #
  # Figures without `process_` are those of the thread. Work of other threads, for it or for themselves, is only in
  # the figures of the process. *Retained* memory was born in the block and was live at its end. Unknown figures are
  # nil, and {#notes} says why.
  #
  # @example
  #   measurement = Memintro.measure { parse(document) }
  #   measurement.allocated_bytes    # => 1_204_133
  #   measurement.retained_bytes     # => 81_904
  #   measurement[:objects_retained] # => 204
  #   measurement.value              # what parse returned
  #   puts measurement
  class Measurement
    # Figures of malloc.
    MALLOC = %i[allocations allocated_bytes frees freed_bytes retained_blocks retained_bytes].freeze
    # Figures of Ruby's objects. All objects count as in GC.stat, including those that only the VM sees.
    OBJECTS = %i[objects_allocated objects_freed objects_retained].freeze
    # Figures of time and of the collector. The collector works for the whole process.
    TIME = %i[wall_ns cpu_ns gc_time_ns minor_gc_count major_gc_count].freeze
    # The same figures of the process.
    PROCESS = [*MALLOC, *OBJECTS].map { |name| :"process_#{name}" }.freeze
    # Names of the attributes, in the order of {#to_h}.
    ATTRIBUTES = [*TIME, *MALLOC, *OBJECTS, *PROCESS, :tracking, :notes, :top_allocated, :top_retained].freeze

    include ValueObject

    # What the measured thread did at one call site. Frozen.
    class Site
      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[name kind allocations allocated_bytes retained_blocks retained_bytes].freeze

      include ValueObject

      # @return [String] as {CallSite#name}
      attr_reader :name
      # @return [Symbol] `:ruby`, `:native` or `:pseudo`
      attr_reader :kind
      # @return [Integer] allocations by the thread in the block
      attr_reader :allocations
      # @return [Integer] their bytes
      attr_reader :allocated_bytes
      # @return [Integer] how many of these blocks were live at the end
      attr_reader :retained_blocks
      # @return [Integer] their bytes
      attr_reader :retained_bytes

      # @api private
      # @param row [Array] of Memintro::Native::Measuring
      def initialize(row)
        @kind, name, line, @allocations, @allocated_bytes, @retained_blocks, @retained_bytes = row
        @name = (@kind == :ruby ? "#{name}:#{line}" : name).freeze
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{Names.printable(name)}: #{Units.bytes(allocated_bytes)} in " \
          "#{Units.counted(allocations, 'block')}, #{Units.bytes(retained_bytes)} retained>"
      end
      alias to_s inspect
    end

    # @return [Object] the block's value; nil while it runs, and if it was left by an exception
    attr_reader :value

    # @!attribute [r] wall_ns
    #   @return [Integer] nanoseconds that the block took, including the cost of measuring
    # @!attribute [r] cpu_ns
    #   @return [Integer] nanoseconds of CPU time that this thread used
    # @!attribute [r] gc_time_ns
    #   @return [Integer, nil] nanoseconds that threads waited for the collector; nil where Ruby does not measure
    # @!attribute [r] minor_gc_count
    #   @return [Integer] collections of young objects only
    # @!attribute [r] major_gc_count
    #   @return [Integer] collections of all objects
    # @!attribute [r] allocations
    #   @return [Integer, nil] number of malloc's blocks that the thread allocated
    # @!attribute [r] allocated_bytes
    #   @return [Integer, nil] the bytes that it asked for
    # @!attribute [r] frees
    #   @return [Integer, nil] blocks that the thread gave back, of any thread and age
    # @!attribute [r] freed_bytes
    #   @return [Integer, nil] their bytes
    # @!attribute [r] retained_blocks
    #   @return [Integer, nil] blocks that the thread allocated in the block and that were live at its end
    # @!attribute [r] retained_bytes
    #   @return [Integer, nil] their bytes
    # @!attribute [r] objects_allocated
    #   @return [Integer, nil] objects that the thread made
    # @!attribute [r] objects_freed
    #   @return [Integer, nil] objects that were freed while this thread collected, of any thread and age
    # @!attribute [r] objects_retained
    #   @return [Integer, nil] objects that the thread made in the block and that were live at its end
    # @!attribute [r] tracking
    #   @return [Symbol, nil] tracking for the block: `:was_on`: it was already on; `:started`: it was off;
    #     `:switched`: it was sampling; nil: malloc was not followed
    # @!attribute [r] notes
    #   @return [Array<String>] why figures are missing, and limits of the others
    # @!attribute [r] top_allocated
    #   @return [List<Site>] where the thread allocated, most bytes first
    # @!attribute [r] top_retained
    #   @return [List<Site>] where it allocated the blocks that were live at the end, most bytes first
    ATTRIBUTES.each { |name| attr_reader name }

    # Runs a block whose allocations count for no line.
    #
    # @api private
    # @return [Object] the block's value
    def self.hidden
      Native.hide_own
      yield
    ensure
      Native.show_own
    end

    # Runs the block and measures it. Called in {hidden}; the allocations of the block itself count.
    #
    # @api private
    # @param block [Proc]
    # @param gc [Boolean] whether garbage is collected before what is retained is counted
    # @param objects [Boolean] whether objects are followed
    # @param top [Integer] call sites to show
    # @param malloc [Boolean] whether malloc is followed
    # @return [Measurement]
    def self.take(block, gc:, objects:, top:, malloc: true)
      alone = Notes.of_thread.empty?
      native = native(malloc && alone, objects && alone)
      count(block, native, new, block.lambda? && block.arity.zero?, gc, top)
    end

    # Nothing here makes an object between begin and end, once it has run before.
    #
    # @api private
    # @return [Measurement]
    def self.count(block, native, measurement, without, collect, top)
      value = nil
      begin
        native.begin
        value = without ? block.call : block.call(measurement)
      ensure
        figures = native.end(collect, top)
        measurement.fill(figures, value, top) if figures
      end
      measurement
    end
    private_class_method :count

    def self.native(malloc, objects)
      return Native::Measuring.new(false, false, 0, 0) if Brake.on?

      malloc &&= supported?
      Native::Measuring.new(malloc, objects, Memintro.setting(:max_sites) || 0,
                            Memintro.setting(:max_tracker_bytes) || 0)
    end
    private_class_method :native

    # If malloc cannot be followed, the other figures are still valid.
    def self.supported?
      Native.load_hook
      true
    rescue UnsupportedError
      false
    end
    private_class_method :supported?

    # @return [Integer] number of collections
    def gc_count
      minor_gc_count + major_gc_count
    end

    # @return [Boolean] whether the block has ended, so that the figures are known
    def ended?
      frozen?
    end

    # @return [Hash{Symbol => Object}] every attribute but the value, call sites as hashes
    def to_h
      return super unless ended?

      { **super, top_allocated: top_allocated.map(&:to_h), top_retained: top_retained.map(&:to_h) }
    end

    # @return [String] {#to_h} as JSON, in one line
    def to_json(*)
      UntrackedText.made { JsonText.line(to_h) }
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{ended? ? MeasurementText.new(self).answer.chomp('.') : 'under way'}>"
    end

    # @return [String] the answer, then all figures as a table, then call sites
    def to_s
      ended? ? MeasurementText.new(self).lines.join("\n") : inspect
    end

    # @api private
    # @return [Measurement] the same without the value
    def without_value
      copy = dup
      copy.instance_variable_set(:@value, nil)
      copy.freeze
    end

    # @api private
    # @param figures [Hash{Symbol => Object}] of Memintro::Native::Measuring
    # @return [self]
    def fill(figures, value, top)
      @value = value
      [*TIME, *MALLOC, *OBJECTS, *PROCESS, :tracking].each { |name| instance_variable_set(:"@#{name}", figures[name]) }
      @notes = Notes.about(figures).freeze
      (OBJECTS + PROCESS.grep(/objects/)).each { |name| instance_variable_set(:"@#{name}", nil) } if unseen?(figures)
      sites = figures.fetch(:sites, []).map { |row| Site.new(row) }
      @top_allocated = greatest(sites, :allocated_bytes, top)
      @top_retained = greatest(sites, :retained_bytes, top)
      freeze
    end

    private

    def unseen?(figures)
      figures.fetch(:objects_unseen, 0).positive?
    end

    def greatest(sites, figure, top)
      some = sites.select { |site| site[figure].positive? }
      List.new(some.sort_by { |site| [-site[figure], site.name] }.first(top))
    end
  end

  AfterFork.install { Native.measuring_in_child }
  # The first calls of methods make objects of the VM, which count for no line.
  [proc {}, -> {}].each do |block|
    2.times do
      Measurement.hidden { Measurement.take(block, gc: false, objects: false, top: 0, malloc: false) }
    end
  end
end
