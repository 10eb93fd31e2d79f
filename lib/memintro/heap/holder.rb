# frozen_string_literal: true

require_relative "../support/list"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # What {Holder} and {LargeObject} have in common: what is known of an object of a copied heap.
  module HeapObject
    # @return [String] its class; of an object that Ruby hides its type
    attr_reader :class_name
    # @return [String, nil] its own name, if it is a class or module
    attr_reader :name
    # @return [String] its type, such as `OBJECT` or `ARRAY`
    attr_reader :type
    # @return [String] where it was
    attr_reader :address
    # @return [String, nil] where a closure or frame was made, such as `mailer.rb:12`
    attr_reader :at

    # The object itself, if one of the same class is still at its address: what it was may have died, and another one
    # may have come there.
    #
    # @return [Object, nil] nil too for what Ruby hides
    # @example
    #   Memintro.referrers(message).first.object   # => [#<Message>, …]
    def object
      number = Integer(address, 16, exception: false)
      number && Native.heap_object(number, class_name)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{self}>"
    end

    private

    # @param row [Hash{String => Object}] of the tool's answer
    def take(row)
      @class_name = row["class"].to_s.freeze
      @name = row["name"]&.to_s.freeze
      @type = row["type"].to_s.freeze
      @address = row["address"].to_s.freeze
      @at = row["at"]&.to_s.freeze
    end
  end

  # An object, or a root, that holds an object, as it was when the heap was copied. Frozen.
  class Holder
    include ValueObject
    include HeapObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[class_name name edge type address at bytes repeated left_out alike].freeze

    # @api private
    # @param answer [Hash{String => Object}] the tool's, to `referrers`
    # @return [Array<Holder>] the roots that refer to the objects. Words of machine stacks have no names, and who asks
    #   has some
    def self.roots(answer)
      rows = Array(answer["roots"]).reject { |row| row["root"] == "machine_context" && row["root_edge"].nil? }
      rows.uniq.map do |row|
        new("class" => "root #{row['root']}", "type" => "ROOT", "edge" => row["root_edge"], "text" => row["text"])
      end
    end

    # @return [String, nil] how it holds the object: `@recent`, `[3]`, `[:key]`, `::NAME`, `local bus`, `(internal)`
    #   where Ruby does not tell
    attr_reader :edge
    # @return [Integer, nil] bytes of its own
    attr_reader :bytes
    # @return [Integer] holders behind it for which it stands, too; in a group, those of the longest way
    attr_reader :left_out

    # @api private
    # @param row [Hash{String => Object}] of the tool's answer
    def initialize(row)
      take(row)
      @edge = row["edge"]&.to_s.freeze
      @bytes = row["bytes"]
      @left_out = row["left_out"].to_i
      @alike = row["alike"] ? true : false
      @repeated = row["repeated"] ? true : false
      @text = row["text"].to_s.freeze
      freeze
    end

    # @return [Boolean] whether it stands for a chain, too, that is left out: of holders alike, or the middle of
    #   a way with more than 100
    def repeated? = @repeated

    # The name without question mark, as {#to_h} has it.
    # @api private
    alias repeated repeated?

    # @return [Boolean] whether those that are left out are of the same kind, and hold each other in the same way
    def alike? = @alike

    # The name without question mark, as {#to_h} has it.
    # @api private
    alias alike alike?

    # @return [Boolean] whether memintro itself holds it, to answer
    # @api private
    def own?
      edge == "(memintro)" || class_name.start_with?("Memintro::")
    end

    # @return [String] such as `Archive#@recent`, `Array[3]`, `block at mailer.rb:12`, `value of Thread`; `… Node#@next`
    #   if holders behind it are left out
    def to_s = @text
  end

  # An object with what it retains, as it was when the heap was copied: of {Memintro.largest}. Frozen.
  class LargeObject
    include ValueObject
    include HeapObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[class_name name type address bytes retained_bytes held_by at site generation].freeze

    # @return [Integer] bytes of its own: its slot and its malloc memory
    attr_reader :bytes
    # @return [Integer, nil] these, and the bytes of all objects that only it keeps alive; nil of a list by `:bytes`
    attr_reader :retained_bytes
    # @return [String] its shortest way to a root: `Archive#@recent (Array) ← ARCHIVE`
    attr_reader :held_by
    # @return [String, nil] the line that made it, where objects are tracked
    attr_reader :site
    # @return [Integer, nil] the number of collections before it was made, where objects are tracked
    attr_reader :generation

    # @api private
    # @param row [Hash{String => Object}] of the tool's answer
    def initialize(row)
      take(row)
      @bytes = row["bytes"].to_i
      @retained_bytes = row["retained_bytes"]
      @held_by = row["held_by"].to_s.freeze
      @site = row["line"]&.to_s.freeze
      @generation = row["generation"]
      freeze
    end

    # @return [Boolean] whether memintro itself holds it, to answer
    # @api private
    def own?
      class_name.start_with?("Memintro::") || held_by.start_with?("Memintro::", "(memintro)")
    end

    # @return [String] such as `17.5 MiB retained (40 bytes of its own): Hash, held by Cache::STORE`
    def to_s
      Native.large_object_text(to_h)
    end
  end

  # How an object, or many, are held: from the holder next to them up to a root. Frozen.
  class HeldPath
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[objects bytes holders root root_edge shortened left_out].freeze

    # @return [Integer] how many objects are held so
    attr_reader :objects
    # @return [Integer, nil] their bytes
    attr_reader :bytes
    # @return [List<Holder>] the one next to the objects first
    attr_reader :holders
    # @return [String] the kind of root: `vm`, `global_tbl`, `finalizers`, `machine_context` and so on, as Ruby calls it
    attr_reader :root
    # @return [String, nil] how the root holds the last holder: `$name`, `C address registered (libfoo.so+0x12f0)`
    attr_reader :root_edge
    # @return [Integer] holders that are left out: of a chain, or of the middle of a long way
    attr_reader :left_out

    # @api private
    # @param row [Hash{String => Object}] of the tool's answer
    def initialize(row)
      @left_out = row["left_out"].to_i
      @objects = row["objects"] || 1
      @bytes = row["bytes"]
      @holders = List.new(Array(row["path"]).map { |step| Holder.new(step) })
      @root = row["root"].to_s.freeze
      @root_edge = row["root_edge"]&.to_s.freeze
      @text = row["text"].to_s.freeze
      freeze
    end

    # @return [Boolean] whether holders are left out
    def shortened? = left_out.positive?

    # The name without question mark, as {#to_h} has it.
    # @api private
    alias shortened shortened?

    # @return [Boolean] whether the object is held so only because somebody asks
    # @api private
    def own?
      holders.any?(&:own?) || (root == "machine_context" && holders.empty?)
    end

    # @return [String] such as `Archive#@recent (Array) ← local archive at main.rb:3`
    def to_s = @text

    # @return [String] one line
    def inspect
      "#<#{self.class} #{Units.count(objects)}: #{self}>"
    end
  end

  # Who holds objects: their shortest ways to a root, those of the same classes and names as one. Frozen.
  class Holders
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[sentence objects bytes unreachable unreachable_bytes by groups more_groups other_ways
                    more_other_ways notes pause_ms].freeze
    # What ways may be ranked by.
    BY = %i[bytes objects].freeze

    # @return [String] what the first group says
    attr_reader :sentence
    # @return [Integer] objects that were asked for, and what they take
    attr_reader :objects, :bytes
    # @return [Integer] those that nothing holds, and their bytes: garbage that is not collected yet
    attr_reader :unreachable, :unreachable_bytes
    # @return [Symbol] what the groups are ranked by: `:bytes` or `:objects`
    attr_reader :by
    # @return [List<HeldPath>] most bytes or objects first; last those of what the VM itself always has
    attr_reader :groups
    # @return [Integer] groups that are left out
    attr_reader :more_groups
    # @return [List<HeldPath>] ways that would still hold objects of the first group without its way; three at most.
    #   They begin where that way fans out: at its objects, or at what only one of them hangs on
    attr_reader :other_ways
    # @return [Integer] those that are left out
    attr_reader :more_other_ways
    # @return [Array<String>] what limits the answer
    attr_reader :notes
    # @return [Float, nil] milliseconds for which Ruby stood still
    attr_reader :pause_ms

    # @api private
    # @param answer [Hash{String => Object}] the tool's
    # @param pause_ms [Float, nil]
    def initialize(answer, pause_ms = nil)
      @sentence = answer["sentence"].to_s.freeze
      @objects = answer["matched"].to_i
      @bytes = answer["matched_bytes"].to_i
      @unreachable = answer["unreachable"].to_i
      @unreachable_bytes = answer["unreachable_bytes"].to_i
      @by = (answer["by"] || BY.first).to_sym
      @groups, @other_ways = %w[groups other_ways].map do |name|
        List.new(Array(answer[name]).map { |row| HeldPath.new(row) })
      end
      @more_groups = answer["more_groups"].to_i
      @more_other_ways = answer["more_other_ways"].to_i
      @notes = Array(answer["notes"]).map { |note| note.to_s.freeze }.freeze
      @pause_ms = pause_ms
      @text = answer["text"].to_s.freeze
      freeze
    end

    # @return [String] the sentence, then a line for each group, with shares and bytes
    def to_s
      @text
    end

    # @return [String] the sentence
    def inspect
      "#<#{self.class} #{sentence}>"
    end
  end

  # A reference of a root or a stack. Frozen.
  class HeldValue
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[holder name class_name address].freeze

    # @return [String] the kind of root as Ruby calls it; of a stack, its thread
    attr_reader :holder
    # @return [String, nil] `$name`, `local bus at main.rb:30`; nil where Ruby does not tell: in registers and on a
    #   machine stack, where the collector takes each word that may be an object for one
    attr_reader :name
    # @return [String] the class of what is held; of an object that Ruby hides its type
    attr_reader :class_name
    # @return [String] where it is
    attr_reader :address

    # @api private
    def initialize(holder, name, class_name, address)
      @holder = holder.freeze
      @name = name.freeze
      @class_name = class_name.freeze
      @address = format("0x%x", address).freeze
      freeze
    end

    # See {Holder#object}.
    # @return [Object, nil]
    def object
      Native.heap_object(Integer(address, 16), class_name)
    end

    # @return [String] one short line
    def to_s
      Native.held_value_text(to_h)
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{self}>"
    end
  end
end
