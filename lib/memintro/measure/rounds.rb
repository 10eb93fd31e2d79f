# frozen_string_literal: true

require_relative "../support/brake"
require_relative "../support/units"
require_relative "measuring"

module Memintro
  # Runs a block repeatedly within one measurement of the calling thread, and counts the remains of each part of it.
  #
  # A part is identified by its *moment*: everything born from there on. One full collection is enough to count the
  # remains of all parts. All figures count malloc's blocks, the slots of objects, because small objects never call
  # malloc, and the resident part of the stacks of fibers, which Ruby maps itself.
  # @api private
  class Rounds
    # The remains of a part: live blocks of malloc and their bytes, live objects and the bytes of their slots, and
    # resident bytes of stacks of fibers.
    Left = Struct.new(:blocks, :block_bytes, :objects, :object_bytes, :stack_bytes) do
      # @return [Integer]
      def bytes = block_bytes + object_bytes + stack_bytes
    end
    # The remains of the memory that a line has made. The name of the class is nil for malloc's blocks.
    Line = Struct.new(:name, :kind, :class_name, :number, :bytes, :addresses)

    # @param block [Proc]
    # @yieldparam rounds [Rounds]
    # @return [Object] the value of this method's block
    # @raise [UnsupportedError, DisabledError, UnknownRubyError, RactorError, Error] if nothing can be measured here
    def self.during(block)
      raise DisabledError, "#{Brake.cause}, so memory cannot be measured" if Brake.holds?

      MainRactor.only
      Memintro.send(:ready_to_measure)
      refuse_what_cannot_be_measured
      Measurement.hidden do
        native = Native::Rounds.new(Memintro.setting(:max_sites) || 0, Memintro.setting(:max_tracker_bytes) || 0)
        raise UnknownRubyError, "this Ruby does not report new and freed objects" unless native.begin

        begin
          yield new(native, block)
        ensure
          native.end
        end
      end
    end

    # Without the hook there are no figures, and then a test must not pass.
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
    # @raise [Error] if the block has turned tracking off
    def moment = ask { @native.moment }

    # Collects all garbage.
    # @return [void]
    def collect = Native::Rounds.collect

    # @param moments [Array<Array(Integer, Integer)>] in the order of time
    # @return [Array<Left>] for each moment, live memory that was born between it and the next one
    # @raise [Error] if figures are missing
    def left(moments)
      rows = ask { @native.left(moments) }
      confirm
      rows.map { |row| Left.new(*row) }
    end

    # @param moment [Array(Integer, Integer)]
    # @param classes [Array<Class>]
    # @return [Integer] live objects of these classes and their subclasses that were made since the moment
    def count(moment, classes) = ask { @native.count(moment, classes) }

    # @param moment [Array(Integer, Integer)]
    # @param most [Integer]
    # @return [Array<Line>] origins of the remains since the moment: lines of malloc's blocks, then lines and classes
    #   of objects, each list by most bytes
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
