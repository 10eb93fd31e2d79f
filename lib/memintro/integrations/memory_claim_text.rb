# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/table"
require_relative "../support/units"

module Memintro
  # The message of a test about the memory of a block: the sentence, then the lines that made the memory, then its
  # holders.
  # @api private
  class ClaimText
    # Largest process whose objects are searched for holders.
    MOST_RSS_BYTES = 1 << 30
    # Seconds after which that search is given up.
    SEARCH_SECONDS = 20
    # Ways to show.
    WAYS = 3
    private_constant :MOST_RSS_BYTES, :SEARCH_SECONDS, :WAYS

    # @param verdict [LeakCheck::Outcome, ClaimCheck::Outcome]
    # @return [String]
    def render(verdict)
      return "expected the block to #{description}, but #{finding(verdict)}" unless verdict.above?

      [finding(verdict) + place(verdict.lines), *tables(verdict.lines), *holders(verdict.lines)].join("\n")
    end

    private

    # The line with most bytes of malloc and of slots together.
    def place(lines)
      named = lines.select { |line| line.kind == :ruby }
      named = lines if named.empty?
      most = named.group_by(&:name).values.max_by { |all| all.sum(&:bytes) }
      most ? ", at #{short(most.first)}" : ""
    end

    def tables(lines)
      blocks, objects = lines.partition { |line| line.class_name.nil? }
      table(self.class::BLOCKS, "blocks", blocks) { |line| short(line) } +
        table(self.class::OBJECTS, "objects", objects) do |line|
          "#{Names.printable(line.class_name)}, at #{short(line)}"
        end
    end

    def table(title, noun, lines)
      return [] if lines.empty?

      rows = lines.map { |line| [Units.count(line.bytes), Units.count(line.number), yield(line)] }
      ["", title, *Table.new(["bytes", noun], "", rows).lines(Style.new(false)).map(&:rstrip)]
    end

    def short(line)
      @names ||= Names.new(Memintro.configuration.app_root)
      @names.short(line)
    end

    # The holders of the objects with most bytes.
    def holders(lines)
      line = lines.find { |one| one.addresses.any? }
      return [] unless line
      if Memintro.rss.to_i > MOST_RSS_BYTES
        return ["", "held by: Memintro.holders(#{line.class_name}) would tell, but copies #{Units.bytes(Memintro.rss)}"]
      end

      ["", "held by:", *ways(line.addresses)]
    rescue Error => e
      ["", "held by: not known, because #{e.message}"]
    end

    # Addresses, because a list of the objects themselves would hold them.
    def ways(addresses)
      holders = Memintro.send(:holders_at, addresses, top: WAYS, seconds: SEARCH_SECONDS)
      holders.groups.empty? ? [holders.sentence] : holders.groups.map(&:to_s)
    end

    # Such as `64 bytes an iteration (between 62 and 66)`.
    def figure(verdict, noun, plural = "#{noun}s")
      number, low, high = verdict.per_iteration, verdict.low, verdict.high
      text = "#{number(number)} #{Units.noun(number, noun, plural)} an iteration"
      low.nil? || [low, high] == [number, number] ? text : "#{text} (between #{number(low)} and #{number(high)})"
    end

    # The same for bytes, with the bytes that are in no table.
    def bytes_figure(verdict)
      return figure(verdict, "byte") unless verdict.stacks.positive?

      "#{figure(verdict, 'byte')}, of it #{Units.bytes(verdict.stacks)} stacks of fibers"
    end

    def number(number)
      number == number.to_i ? Units.count(number.to_i) : format("%.1f", number)
    end
  end

  # The text about a leaking block.
  # @api private
  class LeakText < ClaimText
    # Titles of the tables.
    BLOCKS = "left of malloc's blocks, by line:"
    OBJECTS = "left of objects, by class and line:"

    # @param per_iteration [Integer] bytes that are allowed
    def initialize(per_iteration)
      super()
      @per_iteration = per_iteration
    end

    # @return [String]
    def description
      @per_iteration.zero? ? "leak memory" : "leak more than #{Units.counted(@per_iteration, 'byte')} an iteration"
    end

    private

    def finding(verdict)
      bytes = Units.counted(verdict.bytes, "byte")
      over = "over #{Units.counted(verdict.iterations, 'iteration')}"
      return "it left nothing #{over}" if verdict.bytes.zero?
      return "it left #{bytes} #{over}, which do not grow with the iterations" unless verdict.above?

      "the block leaked #{bytes_figure(verdict)}: #{bytes} #{over}"
    end
  end

  # The text about the bytes that an iteration allocates or retains.
  # @api private
  class BytesText < ClaimText
    # Titles of the tables.
    BLOCKS = "malloc's blocks of one iteration, by line:"
    OBJECTS = "objects of it that are not freed, by class and line:"

    # @param figure [Symbol] `:allocated_bytes` or `:retained_bytes`
    # @param most [Integer]
    def initialize(figure, most)
      super()
      @allocated = figure == :allocated_bytes
      @most = most
    end

    # @return [String]
    def description
      "#{@allocated ? 'allocate' : 'retain'} more than #{Units.counted(@most, 'byte')} an iteration"
    end

    private

    def finding(verdict)
      verb = @allocated ? "allocated" : "retained"
      return "it #{verb} #{bytes_figure(verdict)}" unless verdict.above?

      "the block #{verb} #{bytes_figure(verdict)}, more than #{Units.count(@most)}"
    end

    # Allocated bytes need no holder.
    def holders(lines) = @allocated ? [] : super
  end

  # The text about the objects that an iteration retains.
  # @api private
  class ObjectsText < ClaimText
    # Titles of the tables.
    BLOCKS = "all of malloc's blocks that the last iteration left, by line:"
    OBJECTS = "all objects that it left, by class and line:"

    # @param classes [Array<Class>]
    def initialize(classes)
      super()
      @classes = classes
    end

    # @return [String]
    def description = "retain #{names}"

    private

    def names = @classes.map { |klass| Arguments.shown(klass) }.join(" or ")

    def finding(verdict)
      return "it retained none" if verdict.per_iteration.zero?

      "the block retained #{figure(verdict, names, "objects of #{names}")}"
    end
  end
end
