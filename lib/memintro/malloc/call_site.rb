# frozen_string_literal: true

require_relative "../support/estimates"
require_relative "../support/figures"
require_relative "../support/units"
require_relative "../support/value_object"
require_relative "native_caller"
require_relative "site_row"
require_relative "stack_frame"

module Memintro
  # A place that allocates, with its figures at one instant. Frozen.
  #
  # A site is a line of Ruby (`:ruby`), a native caller outside Ruby's lock (`:native`), or one of `(boot)`, `(gc)` and
  # `(other)` (`:pseudo`). It keeps the row of the tracker and computes the rest on demand, so that a million sites stay
  # small.
  #
  # @example
  #   site = Memintro["leak.rb:12"]
  #   site.live_bytes                                    # => 51_200_000
  #   site.each_block { |size, generation, address| … }
  class CallSite
    # Names of the attributes, in the order of {#to_h}.
    ATTRIBUTES = [:name, :path, :lineno, :kind, *Figures::OF_BLOCKS].freeze
    # Figures of the objects that were made here, which are in {#to_h} if there are any. All are 0 unless objects are
    # tracked (`Memintro.start(objects: true)`); `retained_bytes` then is `live_bytes`.
    OBJECT_FIGURES = Figures::OF_OBJECTS
    # The attributes that are numbers to sort by.
    FIGURES = Figures::SORTABLE
    # The figures that have a standard error: `live_bytes_standard_error` and so on. (A maximum is the greatest that was
    # seen in the sample.)
    ESTIMATES = (FIGURES - Figures::MAXIMA).freeze
    # Those of malloc.
    MALLOC_ESTIMATES = (ESTIMATES - OBJECT_FIGURES).freeze
    private_constant :MALLOC_ESTIMATES

    # Greatest age in GC generations that can be asked for.
    MOST_AGE = (2**32) - 1

    include FigureLists::Readers
    include ValueObject
    include Estimates

    # Longest name that {#inspect} shows whole.
    INSPECTED_NAME = 80
    private_constant :INSPECTED_NAME

    # @api private
    # @param row [Array] see {SiteRow}
    # @param aged [Array(Integer, Integer), nil] bytes and blocks that are old enough, if only those count as live
    # @param epoch [Integer, nil] which start or clear the row belongs to; nil: the row was read from a file
    # @param aged_objects [Array(Integer, Integer), nil] the same of objects: bytes of slots, and objects
    def initialize(row, aged = nil, epoch = nil, aged_objects = nil)
      @row = row
      @aged_objects = aged_objects
      @aged = aged
      @epoch = epoch
      freeze
    end

    # @return [String] `path:line`, `libfoo.so(symbol+0x1c)` or `(gc)`
    def name
      Native.untracked_enter
      kind == :ruby ? "#{@row[SiteRow::NAME]}:#{@row[SiteRow::LINENO]}" : @row[SiteRow::NAME]
    ensure
      Native.untracked_leave
    end

    # @return [String, nil] path of the Ruby file as Ruby has it; binary if it is not valid UTF-8
    def path
      @row[SiteRow::NAME] if kind == :ruby
    end

    # @return [Integer, nil] line of the Ruby file, from 1
    def lineno
      @row[SiteRow::LINENO] if kind == :ruby
    end

    # @return [Symbol] `:ruby`, `:native` or `:pseudo`
    def kind
      @row[SiteRow::KIND]
    end

    # @return [Array<StackFrame>] the lines of Ruby that led here, the innermost first, if this is one of
    #   {Memintro.stacks}; otherwise its one line. Empty if it is no line of Ruby. Methods written in C have no line of
    #   their own, and are left out.
    # @example
    #   Memintro.stacks(1).first.stack.map(&:to_s)
    #   # => ["leak.rb:12:in `add'", "leak.rb:20:in `block in run'", "leak.rb:19:in `run'"]
    def stack
      Native.untracked_enter
      found = @row[SiteRow::STACK]
      return found.map { |path, line, label| StackFrame.new(path, line, label) }.freeze if found

      (kind == :ruby ? [StackFrame.new(path, lineno)] : []).freeze
    ensure
      Native.untracked_leave
    end

    # @return [Integer] bytes of the blocks from here that are live; with `older_than_gcs:` only of the old ones
    def live_bytes
      @aged ? @aged[SiteRow::OLD_BYTES] : SiteRow.live_bytes(@row)
    end

    # @return [Integer] blocks from here that are live; with `older_than_gcs:` only the old ones
    def live_blocks
      @aged ? @aged[SiteRow::OLD_BLOCKS] : SiteRow.live_blocks(@row)
    end

    # @return [Float] mean age, in GC generations, at which blocks from here were given back; 0.0 if none was
    def mean_lifespan
      SiteRow.mean_lifespan(@row)
    end

    # @return [Integer] live bytes of all ages now, less those at {Memintro.mark}; all of them without a mark
    def growth
      SiteRow.growth(@row)
    end

    # @return [Integer] live objects that were made here; with `older_than_gcs:` only the old ones. An object lives
    #   until the collector has freed its slot.
    def live_objects
      @aged ? @aged_objects.to_a[1].to_i : SiteRow.live_objects(@row)
    end

    # @return [Integer] bytes of the slots of {#live_objects}. Memory that an object has from malloc is in
    #   {#live_bytes} of the line that asked for it.
    def object_bytes
      @aged ? @aged_objects.to_a[0].to_i : SiteRow.object_bytes(@row)
    end

    # @return [Integer] objects made here, live or freed
    def object_allocations
      SiteRow.object_allocations(@row)
    end

    # @return [Integer] {#live_bytes} and {#object_bytes}: what this line holds. No byte counts twice.
    def retained_bytes
      live_bytes + object_bytes
    end

    # Which objects these are, now. Reads every live object that is tracked: about 30 ns for each. Objects of the VM
    # have names such as `imemo_ment`.
    #
    # @return [Hash{String => Array<Numeric>}] of classes: live objects and bytes of their slots, most bytes first;
    #   empty unless objects are tracked. For a sample, also the standard errors of both.
    # @raise [Memintro::Error] if the site was read from a file
    # @example
    #   Memintro["cache.rb:5"].classes   # => {"Hash" => [20_000, 800_000]}
    def classes
      raise Error, "#{inspect} was read from a file; classes works only in the process that tracks" unless @epoch

      Memintro.untracked do
        found = @epoch == Memintro.epoch ? Native.object_classes([@row[SiteRow::ID]]) : {}
        found.fetch(@row[SiteRow::ID], {}).sort_by { |name, (_, bytes)| [-bytes, name] }.to_h
      end
    end

    # Which C functions led from this line to malloc: one in some allocations is looked at more closely, more of the
    # first ones than of later ones. Ruby's own allocations are left out, so shares may add up to less than 1.
    #
    # @return [Array<NativeCaller>] the greatest share of live bytes first, at most nine; empty if none is known
    # @example
    #   Memintro["app.rb:12"].native_callers.map(&:to_s)
    #   # => ["redcarpet.so(rb_redcarpet_rbase_alloc+0x1c) ~100% of its live bytes"]
    def native_callers
      Native.untracked_enter
      found = @row[SiteRow::NATIVE_CALLERS]
      found ? found[SiteRow::CALLERS].map { |row| NativeCaller.new(row) }.freeze : [].freeze
    ensure
      Native.untracked_leave
    end

    # @return [Integer] samples from which {#native_callers} are estimated
    def native_caller_samples
      @row[SiteRow::NATIVE_CALLERS].to_a[SiteRow::CALLER_SAMPLES].to_i
    end

    # @return [Boolean] whether figures of malloc or of objects are estimated from a sample
    def estimated? = sampled_blocks? || sampled_objects?

    # @return [Boolean] whether the figures of malloc are
    def sampled_blocks? = !@row[SiteRow::VARIANCES].nil?

    # @return [Boolean] whether the figures of objects are estimated from a sample (`objects: :sampled`)
    def sampled_objects? = SiteRow.sampled_objects?(@row)

    # @return [Hash{Symbol => Object}] every attribute, in a fixed order; with {OBJECT_FIGURES} if objects were tracked
    def to_h
      return super unless @row[SiteRow::OBJECTS]

      super.merge(OBJECT_FIGURES.to_h { |name| [name, public_send(name)] })
    end

    # @api private
    # @return [Hash{Symbol => Object}] {#to_h}, and what files have beside
    def saved
      more = {}
      more[:objects] = saved_objects if object_row
      more[:native_callers] = saved_native_callers if native_caller_samples.positive?
      more.empty? ? to_h : to_h.merge(more)
    end

    # @api private
    # @return [Hash{Symbol => Object}] {#native_callers} and their samples
    def saved_native_callers
      callers = native_callers.map { |caller| caller.to_h.except(:name) }
      { samples: native_caller_samples, live_samples: callers.sum { |one| one[:live_samples] }, callers: callers }
    end

    # @api private
    # @return [Hash{Symbol => Numeric}] {#object_row} with the names of its columns
    def saved_objects
      [*SiteRow::OBJECT_COLUMNS, *SiteRow::OBJECT_DOUBTS].zip(object_row).to_h.compact.except(nil)
    end

    # @param name [Symbol, String] an attribute, or one of {OBJECT_FIGURES}
    # @return [Object] its value
    # @raise [ArgumentError] if there is no such attribute
    def [](name)
      figure = OBJECT_FIGURES.find { |one| one.name == name.to_s }
      figure ? public_send(figure) : super
    end

    # @api private
    # @return [Array<Numeric>, nil] see {SiteRow::OBJECT_COLUMNS} and {SiteRow::OBJECT_DOUBTS}; nil if no object was
    #   tracked
    def object_row
      @row[SiteRow::OBJECTS]
    end

    # Live bytes without the garbage that waits for a collection. Of the same instant as the other figures, and kept by
    # counters, so that no block is visited. `Memintro.top(older_than_gcs: 1)` finds the same by visiting all blocks.
    #
    # @return [Integer, nil] bytes of the blocks from here that are live and have outlived a collection; nil where that
    #   is not known, as of a raw dump. A minor one that did not look at them counts as well.
    def old_bytes
      @row[SiteRow::OLD]&.at(SiteRow::OLD_BYTES)
    end

    # @return [Integer, nil] how many blocks these are
    def old_blocks
      @row[SiteRow::OLD]&.at(SiteRow::OLD_BLOCKS)
    end

    # @api private
    # @return [CallSite, nil] with the standard errors of these, as its live figures
    def old
      @row[SiteRow::OLD] && CallSite.new(@row, @row[SiteRow::OLD], @epoch)
    end

    # Visits the blocks from here that are live now (not those that were live when the figures were read). Blocks that
    # {Memintro.clear} or a new start has cleared are not visited. Other threads cannot allocate while the blocks are
    # copied: about 10 ns for each live block of the process. In sampled mode these are the sampled blocks.
    #
    # @yieldparam block [Array(Integer, Integer, Integer)] size (the bytes asked for), generation (the GC count when it
    #   was allocated) and address
    # @return [self, Enumerator] an enumerator without a block
    # @raise [Memintro::Error] if the site was read from a file
    # @example
    #   site.each_block.sum { |size, _generation, _address| size }
    #   site.each_block.map(&:first).max
    def each_block
      return enum_for(:each_block) unless block_given?

      each_weighted_block { |size, generation, address, _| yield [size, generation, address] }
    end

    # As {#each_block}, and with each block how many it stands for: 1.0 unless it was sampled.
    #
    # @api private
    # @yieldparam size [Integer]
    # @yieldparam generation [Integer]
    # @yieldparam address [Integer]
    # @yieldparam weight [Float]
    # @return [self]
    def each_weighted_block
      raise Error, "#{inspect} was read from a file; each_block works only in the process that tracks" unless @epoch

      blocks, now = live_blocks_now
      0.step(blocks.size - 1, 4) { |i| yield blocks[i + 1], now - blocks[i + 2], blocks[i], blocks[i + 3] }
      self
    end

    # @return [String] one short line; a long name is cut
    def inspect
      short = name.dup.force_encoding(Encoding::UTF_8).scrub("?")
      short = "...#{short[-INSPECTED_NAME..]}" if short.size > INSPECTED_NAME
      "#<#{self.class} #{short} live #{shown(:live_bytes) { |count| Units.bytes(count) }} in " \
        "#{counted(:live_blocks, 'block', &:to_s)}, #{counted(:allocations, 'allocation', &:to_s)}, " \
        "#{counted(:frees, 'free', &:to_s)}>"
    end
    alias to_s inspect

    private

    def estimate_of(name) = Native.site_estimate(@row, @aged, @aged_objects, name)

    def figures_with_error = sampled_objects? ? ESTIMATES : MALLOC_ESTIMATES

    def figures_with_interval = figures_with_error.reject { |name| Figures[name].age? }

    def figures_per_sample = Figures::SKEWED

    def certain?(name)
      case name
      when :retained_bytes then !estimated?
      when *OBJECT_FIGURES then !sampled_objects?
      else !sampled_blocks?
      end
    end

    # A row of whole stacks has a cell for its stack, which is empty if it is a line alone.
    def is_stack? = @row.size > SiteRow::STACK

    # The generation is read first, because making the array may run the garbage collector.
    def live_blocks_now
      Native.untracked_enter
      now = Native.generation
      [@epoch == Memintro.epoch ? Native.blocks(@row[SiteRow::ID], is_stack?) : [], now]
    ensure
      Native.untracked_leave
    end
  end
end
