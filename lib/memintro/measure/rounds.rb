# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../support/brake"
require_relative "../support/units"
require_relative "measuring"

module Memintro
  # Runs a block again and again within one measurement of the calling thread, and tells what is left of each part of
  # it.
  #
  # A part is known by its *moment*: what was born from there on. One full collection tells for all parts what is left
  # of each. All figures count malloc's blocks, the slots of objects, because small objects never call malloc, and what
  # is resident of the stacks of fibers, which Ruby maps itself.
  # @api private
  class Rounds
    # Of a part: live blocks of malloc and their bytes, live objects and the bytes of their slots, and resident bytes of
    # the stacks of fibers among them.
    Left = Struct.new(:blocks, :block_bytes, :objects, :object_bytes, :stack_bytes) do
      # @return [Integer]
      def bytes = block_bytes + object_bytes + stack_bytes
    end
    # What a line has made and what is left of it. The name of the class is nil for malloc's blocks.
    Line = Struct.new(:name, :kind, :class_name, :number, :bytes, :addresses)

    # @param block [Proc]
    # @yieldparam rounds [Rounds]
    # @return [Object] the value of this method's block
    # @raise [UnsupportedError, DisabledError, UnknownRubyError, RactorError, Error] if nothing can be measured here
    def self.during(block)
      raise DisabledError, "#{Brake.cause}, so memory cannot be measured" if Brake.holds?

      MainRactor.only
      LazyMethods.load(:Measuring)
      Memintro.send(:ready_to_measure)
      refuse_what_cannot_be_measured
      Measurement.hidden do
        native = Native::Rounds.new(Memintro.setting(:max_sites) || 0, Memintro.setting(:max_tracker_bytes) || 0)
        raise UnknownRubyError, "this Ruby does not tell of its objects" unless native.begin

        begin
          yield new(native, block)
        ensure
          native.end
        end
      end
    end

    # Without the hook there are no figures, and a test must not pass for want of them.
    def self.refuse_what_cannot_be_measured
      notes = Measurement::Notes.of_thread
      raise UnsupportedError, "memory cannot be measured: #{notes.first}" if notes.any?

      Native.load_hook
    end
    private_class_method :refuse_what_cannot_be_measured

    # @param native [Native::Rounds] under way
    # @param block [Proc]
    def initialize(native, block)
      @native = native
      @block = block
    end

    # Runs the block. Only this is measured. Its values are dropped.
    #
    # @param count [Integer] how often
    # @return [void]
    def run(count) = @native.run(@block, count)

    # @return [Array(Integer, Integer)] the moment of now
    # @raise [Error] if the block has turned off what is needed
    def moment = ask { @native.moment }

    # Collects all garbage.
    # @return [void]
    def collect = Native::Rounds.collect

    # @param moments [Array<Array(Integer, Integer)>] in the order in which they were
    # @return [Array<Left>] for each of them what was born from there to the next one, and lives
    # @raise [Error] if figures are missing
    def left(moments)
      rows = ask { @native.left(moments) }
      confirm
      rows.map { |row| Left.new(*row) }
    end

    # @param moment [Array(Integer, Integer)]
    # @param classes [Array<Class>]
    # @return [Integer] live objects of these classes and of those below that were made since the moment
    def count(moment, classes) = ask { @native.count(moment, classes) }

    # @param moment [Array(Integer, Integer)]
    # @param most [Integer]
    # @return [Array<Line>] who made what is left since the moment: lines of malloc's blocks, then lines and classes of
    #   objects, of each those with most bytes
    def lines(moment, most)
      blocks = @native.sites(moment, most).map do |kind, name, line, _, _, count, bytes|
        Line.new(kind == :ruby ? "#{name}:#{line}" : name, kind, nil, count, bytes, [])
      end
      blocks.sort_by { |line| -line.bytes } + objects(moment, most)
    end

    # Runs the block once.
    #
    # @param most [Integer]
    # @return [Array(Integer, Array<Line>)] bytes that it allocated; which lines allocated blocks of malloc, and which
    #   made
    #   objects that are not freed yet
    def allocating(most)
      moment, slots = self.moment, slot_bytes
      measurement = Measurement.take(@block, gc: false, objects: false, top: most)
      slots = slot_bytes - slots
      confirm
      blocks = measurement.top_allocated.map do |site|
        Line.new(site.name, site.kind, nil, site.allocations, site.allocated_bytes, [])
      end
      [measurement.allocated_bytes + slots, blocks + objects(moment, most)]
    end

    # @return [void]
    # @raise [Error] if figures are missing
    def confirm
      problem, dropped = @native.problem
      raise Error, "memory could not be measured: #{Measurement::Notes.problem(problem)}" if problem
      return unless dropped.positive?

      raise Error, "memory could not be measured: #{Units.counted(dropped, 'block')} could not be followed, because " \
                   "memory or max_tracker_bytes ran out"
    end

    private

    # If the block stops tracking, the hook only says that it cannot answer.
    def ask
      yield
    rescue Error
      confirm
      raise
    end

    def slot_bytes = ask { @native.allocated.last }

    def objects(moment, most)
      @native.objects(moment, most).map do |path, line, class_name, count, bytes, addresses|
        name = path.empty? ? "(boot)" : "#{path}:#{line}"
        Line.new(name, path.empty? ? :pseudo : :ruby, class_name, count, bytes, addresses)
      end
    end
  end
end
