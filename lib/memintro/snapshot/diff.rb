# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/value_object"
require_relative "../support/advice"
require_relative "../support/json_text"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"

module Memintro
  # The changes between two {Snapshot}s, by class, type, file of instruction sequences, call site, GC counter and kind
  # of memory, largest growth first. Frozen; `later - earlier` makes one.
  #
  # @example
  #   diff = later - earlier
  #   diff.classes.first             # => #<Memintro::Diff::Change String +1.2 MiB, +30,000 of them>
  #   puts diff                      # a text for people; write(io, format: :html) and :json for others
  class Diff
    # These files open this class, which `autoload` loads.
    require_relative "diff/change"
    require_relative "diff/totals_by_kind"
    require_relative "diff/notes"
    require_relative "diff/sections"

    include ByName

    # Default number of changes of each list in texts and pages.
    DEFAULT_TOP = 10
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze
    # Names for {#[]}: all keys of {#to_h}, in its order, and each of the {#sections}.
    ATTRIBUTES = [:seconds, :same_process, :notes, :earlier, :later, :kinds, :sections, *Sections::TITLES.keys].freeze
    # Bytes that {#inspect} stays below.
    INSPECTED_BYTES = 2048

    # @return [Snapshot]
    attr_reader :earlier
    # @return [Snapshot]
    attr_reader :later
    # @return [List<Change>] the sum of each kind of thing: `"malloc"`, `"instruction sequences"`, `"objects"`,
    #   `"internal objects"`, if both snapshots have it. Kinds overlap, so do not add them up.
    attr_reader :kinds
    # @return [Hash{Symbol => List<Change>}] every list that both snapshots have
    attr_reader :sections
    # @return [Array<String>] limits of the comparison: different processes or versions, parts that one snapshot lacks
    attr_reader :notes

    # @api private
    def initialize(earlier, later)
      @earlier = earlier
      @later = later
      @sections = Sections.compare(earlier, later).freeze
      @kinds = TotalsByKind.compare(earlier, later, @sections)
      @notes = Notes.new(earlier, later).list.freeze
      freeze
    end

    # @return [List<Change>, nil] RSS and its relatives, and the control group's figures
    def memory = sections[:memory]

    # @return [List<Change>, nil] resident bytes by the rows of {Memintro.account}; nil unless both snapshots have that
    #   part
    def account = sections[:account]

    # @return [List<Change>, nil] of these, what is in pages that no other process has; nil unless both snapshots know
    #   that, and memory besides files was shared
    def account_private = sections[:account_private]

    # @return [List<Change>, nil] objects by Ruby's own types; nil unless both snapshots have that part
    def types = sections[:types]

    # @return [List<Change>, nil] objects by class; nil unless both snapshots have that part
    def classes = sections[:classes]

    # @return [List<Change>, nil] instruction sequences by file; nil unless both snapshots have that part
    def iseqs = sections[:iseqs]

    # @return [List<Change>, nil] the same by file and first line
    def iseq_locations = sections[:iseq_locations]

    # @return [List<Change>, nil] objects that only the VM sees, by kind; nil unless both snapshots have that part
    def internals = sections[:internals]

    # @return [List<Change>, nil] the process's totals; nil unless both were tracked
    def malloc = sections[:malloc]

    # @return [List<Change>, nil] live bytes by call site; nil unless both were tracked
    def call_sites = sections[:call_sites]

    # @return [List<Change>, nil] live bytes and bytes of objects' slots by call site, with the count of objects; nil
    #   unless both tracked objects
    def retained = sections[:retained]

    # @return [List<Change>, nil] objects and bytes of their slots by call site; nil unless both tracked objects
    def object_sites = sections[:object_sites]

    # @return [List<Change>, nil] the heap's pages; nil unless both snapshots have that part
    def occupancy = sections[:occupancy]

    # @return [List<Change>, nil] the counters of `GC.stat`
    def gc = sections[:gc]

    # @return [List<Change>, nil] the counters of `GC.stat_heap`; nil before Ruby 3.2
    def gc_heaps = sections[:gc_heaps]

    # @return [Float] seconds from the earlier snapshot to the later
    def seconds
      same_process? ? later.monotonic_s - earlier.monotonic_s : later.time - earlier.time
    end

    # @return [Boolean] whether both are of one process
    def same_process?
      earlier.pid == later.pid && earlier.process[:program] == later.process[:program] &&
        earlier.process[:started] == later.process[:started]
    end

    # The name without question mark, as {#to_h} has it.
    # @api private
    alias same_process same_process?

    # Writes what changed.
    #
    # @param io [#write]
    # @param format [Symbol] `:text`, to read; `:json`; `:html`, a page that needs nothing else
    # @param top [Integer, nil] changes of each list; nil: all, the default for `:json`
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def write(io = $stdout, format: :text, top: format.to_s == "json" ? nil : DEFAULT_TOP)
      Arguments.output(io)
      Arguments.count(:top, top, least: 1, optional: true)
      format = Arguments.choice(:format, format, FORMATS)
      Memintro.untracked { io.write(rendered(format, top, io)) }
      nil
    end

    # @return [String] for people; the first {DEFAULT_TOP} of each list
    def to_s
      Memintro.untracked { rendered(:text, DEFAULT_TOP, nil) }
    end

    # @param top [Integer, nil] changes of each list; nil: all
    # @return [Hash{Symbol => Object}] as hashes, arrays, texts and numbers
    # @raise [ArgumentError, TypeError]
    def to_h(top: nil)
      Arguments.count(:top, top, least: 1, optional: true)
      Memintro.untracked { hash_of(top) }
    end

    # @return [String] {#to_h} as JSON
    def to_json(*)
      Memintro.untracked { rendered(:json, nil, nil) }
    end

    # @return [String] a page with inline styles and nothing to fetch
    def to_html
      Memintro.untracked { rendered(:html, DEFAULT_TOP, nil) }
    end

    # @return [String] a few lines, at most {INSPECTED_BYTES} bytes
    def inspect
      Memintro.untracked do
        verdict = written(:verdict, nil, nil).tr("\n", " ")
        text = "#<#{self.class} of #{format('%.1f', seconds)} s: #{verdict}>"
        text.bytesize <= INSPECTED_BYTES ? text : "#{text.byteslice(0, INSPECTED_BYTES - 8).scrub('')}...>"
      end
    end

    private

    def rendered(format, top, io)
      return written(format, top, io) unless format == :json

      JsonText.dump({ memintro_diff: 1, **hash_of(top) }) << "\n"
    end

    # As the extension writes it: `:text`, `:html`, or `:verdict`, the sentences that a text begins with.
    def written(format, top, io)
      head = [header, period, later.process[:program]&.to_s, Advice.names_commands?, notes]
      lists = sections.map do |name, changes|
        [name.name, Sections::TITLES[name], Sections::LAST.fetch(name, "counter"), changes.map(&:row)]
      end
      sums = kinds.map { |change| [TotalsByKind::NAMES.key(change.name).name, change.row] }
      Native.diff(head, lists, sums, format, top, io ? Style.colour?(io) : false)
    end

    def header
      process = later.process
      "memintro #{process[:memintro]}: what changed in #{period}, pid #{process[:pid]}, ruby #{process[:ruby]}, " \
        "#{later.time.strftime('%FT%TZ')}"
    end

    # The time between the snapshots; also if the one given as the later is the older.
    def period
      "#{Units.duration(seconds.abs)}#{', backwards' if seconds.negative?}"
    end

    def hash_of(top)
      { seconds: seconds.round(3), same_process: same_process?, notes: notes,
        earlier: { time: earlier.time.strftime("%FT%T.%3NZ"), process: earlier.process, parts: earlier.parts },
        later: { time: later.time.strftime("%FT%T.%3NZ"), process: later.process, parts: later.parts },
        kinds: kinds.map(&:to_h),
        sections: sections.transform_values { |list| (top ? list.first(top) : list).map(&:to_h) } }
    end
  end
end
