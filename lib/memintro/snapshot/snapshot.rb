# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/value_object"
require_relative "../malloc/call_sites"
require_relative "../heap/row"
require_relative "../support/units"
require_relative "../support/untracked_text"

module Memintro
  # Figures about one process at one instant, to be kept and compared. Frozen. {Memintro.snapshot} makes one, {load}
  # reads a saved one, and `later - earlier` shows what changed.
  #
  # @example
  #   before = Memintro.snapshot(:iseqs, :classes)
  #   handle(requests)
  #   puts Memintro.snapshot(:iseqs, :classes) - before
  class Snapshot
    # These files open this class, which `autoload` loads.
    require_relative "parts"
    require_relative "saved"

    include ByName
    prepend UntrackedText

    # A row of a list: a class, a kind of object, or the place of instruction sequences. Frozen. The name is in UTF-8,
    # or binary if it is not valid UTF-8.
    class Row < HeapRow; end

    # Names for {#[]}: all keys of {#to_h}, in its order.
    ATTRIBUTES = %i[time monotonic_s parts missing process memory account account_private cgroup gc gc_heaps totals
                    call_sites_left_out call_sites types classes internals iseqs occupancy].freeze
    # Most bytes of {#inspect}, for a process of any size: rbtrace sends it back in one datagram.
    INSPECTED_BYTES = 2048
    # Rows of each list that {#inspect} shows.
    INSPECTED_ROWS = 3
    private_constant :INSPECTED_ROWS

    # @return [Time] when it was taken, UTC
    attr_reader :time
    # @return [Float] seconds of the machine's monotonic clock; compares snapshots of one boot
    attr_reader :monotonic_s
    # @return [Hash{Symbol => Object}] whose figures they are: pid, program, Ruby, memintro, whether it tracks
    attr_reader :process
    # @return [Hash{Symbol => Integer}] `rss_bytes`, `peak_rss_bytes`, `swap_bytes`, `vsize_bytes`, and with part `:pss`
    #   `pss_bytes` and `uss_bytes`; what cannot be had is named in {#missing}
    attr_reader :memory
    # @return [Hash{Symbol => Integer}, nil] resident bytes of each row of {Memintro.account}; nil without part
    #   `:account`
    attr_reader :account
    # @return [Hash{Symbol => Integer}, nil] of {account}, what is in pages that no other process has; nil where that is
    #   not known
    attr_reader :account_private
    # @return [Hash, nil] the control group's limit and usage; nil without one
    attr_reader :cgroup
    # @return [Hash{Symbol => Integer}] all of `GC.stat`
    attr_reader :gc
    # @return [Hash{Integer => Hash}, nil] `GC.stat_heap`, by size pool; nil before Ruby 3.2
    attr_reader :gc_heaps
    # @return [Array<Symbol>] the requested parts beyond the light one
    attr_reader :parts
    # @return [Hash{Symbol => String}] the parts and figures that could not be read, and why
    attr_reader :missing
    # @return [List<Row>, nil] objects by Ruby's own types; nil without part `:types`
    attr_reader :types
    # @return [List<Row>, nil] objects by class; nil without part `:classes`
    attr_reader :classes
    # @return [List<Row>, nil] objects that only the VM sees, by kind; nil without part `:internals`
    attr_reader :internals
    # @return [Hash, nil] `count` and `bytes` of all instruction sequences, and the rows of `paths` (by file) and
    #   `locations` (by file and first line); nil without part `:iseqs`
    attr_reader :iseqs
    # @return [Hash, nil] see {Memintro.occupancy}, `pools` and `holders` as lists of hashes; nil without that part
    attr_reader :occupancy

    # @api private
    # @param parts [Array<Symbol>]
    # @return [Snapshot]
    def self.take(parts)
      wanted = Parts.check(parts)
      strict = parts.none? { |part| part.to_sym == :all }
      Memintro.untracked { new(Parts.take(wanted, strict: strict)) }
    end

    # Reads a snapshot that {#save} has written, of this process or another one. It is equal to what was saved, except
    # that standard errors of estimates are computed again and may be rounded differently.
    #
    # @param path [String, Pathname]
    # @return [Snapshot]
    # @raise [SnapshotError] if the file cannot be read, is cut short, something else or of a newer memintro
    # @raise [TypeError]
    def self.load(path)
      Saved.read(Arguments.text(:path, path))
    end

    # @api private
    # @param data [Hash{Symbol => Object}] see {Parts.take}
    def initialize(data)
      @sites = data[:sites]
      @time = Parts.time(data[:time])
      @monotonic_s = data[:monotonic_s]
      @process = @sites.process
      @memory, @cgroup, @gc, @gc_heaps = data.values_at(:memory, :cgroup, :gc, :gc_heaps)
      @types, @classes, @internals, @iseqs = data.values_at(:types, :classes, :internals, :iseqs)
      @occupancy = data[:occupancy]&.transform_values { |item| item.is_a?(Array) ? List.new(item) : item }
      @account = data[:account].freeze
      @account_private = data[:account_private].freeze
      @parts = data[:parts]
      @missing = data[:missing]
      [@process, @memory, @cgroup, @gc, @gc_heaps, @iseqs, @occupancy, @parts, @missing].each(&:freeze)
      freeze
    end

    # @return [Integer]
    def pid
      process[:pid]
    end

    # @return [Totals, nil] of malloc; nil if nothing was ever tracked
    def totals
      @sites.totals if tracked?
    end

    # @return [List<CallSite>] with most live bytes first: the first 100, or all with part `:sites`; empty if nothing
    #   was ever tracked
    def call_sites
      @sites.top(nil)
    end

    # @return [Integer] number of call sites that are not in {#call_sites}; each of them has at most as many live bytes
    #   as the last site of the list
    def call_sites_left_out
      @sites.left_out
    end

    # @return [Boolean] whether malloc was tracked
    def tracked?
      process[:tracking] || @sites.totals.allocations.positive?
    end

    # Returns what changed between two snapshots.
    #
    # @param earlier [Snapshot]
    # @return [Diff]
    # @raise [TypeError] if `earlier` is something else
    def -(earlier)
      raise TypeError, "#{Arguments.shown(earlier)} is not a Memintro::Snapshot" unless earlier.is_a?(Snapshot)

      Memintro.untracked { Diff.new(earlier, self) }
    end

    # @return [Hash{Symbol => Object}] everything, as hashes, arrays, texts and numbers
    def to_h
      Memintro.untracked do
        { time: time.strftime("%FT%T.%3NZ"), monotonic_s: monotonic_s, parts: parts, missing: missing,
          process: process, memory: memory, account: account, account_private: account_private,
          cgroup: cgroup, gc: gc, gc_heaps: gc_heaps,
          totals: @sites.totals.to_h, call_sites_left_out: call_sites_left_out, call_sites: call_sites.map(&:saved),
          types: types&.map(&:to_h), classes: classes&.map(&:to_h), internals: internals&.map(&:to_h),
          iseqs: iseqs && Parts.plain(iseqs.transform_values { |item| item.is_a?(Array) ? item.map(&:to_h) : item }),
          occupancy: occupancy && Parts.plain(occupancy) }
      end
    end

    # @return [String] {#to_h} as JSON, with the number of its layout as `memintro_snapshot`
    def to_json(*)
      Memintro.untracked { Saved.text(self) }
    end

    # Writes the snapshot to a file as JSON that only its owner may read. An existing file is replaced only when the new
    # one is complete, and stays as it is if something goes wrong. A symbolic link is replaced as well, and its target
    # is left alone, because another user may have put the link there. Devices and named pipes are written to.
    #
    # @param path [String, Pathname]
    # @return [self]
    # @raise [SnapshotError] if the file cannot be written
    # @raise [TypeError]
    def save(path)
      Memintro.untracked { Saved.write(Arguments.text(:path, path), to_json) }
      self
    end

    # @return [String] a few lines, at most {INSPECTED_BYTES} bytes
    def inspect
      summary(INSPECTED_ROWS).byteslice(0, INSPECTED_BYTES - 16).scrub("").delete_suffix(">") << ">"
    end
    alias to_s inspect

    # @api private
    # @param rows [Integer, nil] of each list; nil: all
    # @return [String] as {#inspect}, whatever its length; more rows than that has stand on a line each
    def summary(rows)
      Memintro.untracked do
        short = rows && rows <= INSPECTED_ROWS
        lists = leading(rows).flat_map do |title, list|
          short ? ["  #{title}: #{list.join('; ')}"] : ["  #{title}:", *list.map { |row| "    #{row}" }]
        end
        ["#<#{self.class} #{headline}", *lists].join("\n") << ">"
      end
    end

    private

    def headline
      facts = ["#{time.strftime('%FT%TZ')} pid #{pid} ruby #{process[:ruby]}"]
      facts << "rss #{Units.bytes(memory[:rss_bytes])}" if memory[:rss_bytes]
      facts << "#{Units.counted(gc[:count], 'GC')}, #{Units.counted(gc[:heap_live_slots], 'live slot')}"
      facts << malloc if totals
      facts << "iseqs #{Units.bytes(iseqs[:bytes])} in #{Units.count(iseqs[:count])}" if iseqs
      facts << "parts #{parts.join(' ')}" unless parts.empty?
      facts << "missing #{missing.keys.join(' ')}" unless missing.empty?
      facts.join(", ")
    end

    def malloc
      "malloc live #{amount(totals)} #{Units.noun(totals.live_blocks, 'block')}"
    end

    # An estimate stands with its standard error.
    def amount(figures)
      "#{figures.shown(:live_bytes, &Units.method(:bytes))} in #{figures.shown(:live_blocks, &Units.method(:count))}"
    end

    # @return [Hash{String => Array<String>}] the first rows of each list that has any
    def leading(most)
      lists = { "call sites" => @sites.top(most).map { |site| led(site.name, amount(site)) },
                "types" => first(types, most), "classes" => first(classes, most),
                "iseqs of" => first(iseqs && iseqs[:paths], most), "internals" => first(internals, most),
                "heap pages" => pages(most) }
      lists.reject { |_, rows| rows.empty? }
    end

    # How full the pages are, and which objects keep nearly empty pages.
    def pages(most)
      return [] unless (found = occupancy)

      full = found[:slots].zero? ? 0 : 100.0 * found[:live_slots] / found[:slots]
      holders = found[:holders].first(most || found[:holders].size)
      [format("%s, %.0f%% of their slots live, %s nearly empty", Units.counted(found[:pages], "page"), full,
              Units.count(found[:sparse_pages])),
       *holders.map { |one| led(one[:name], "#{Units.count(one[:count])} on #{Units.count(one[:pages])} of these") }]
    end

    def first(rows, most)
      rows.to_a.first(most || rows.to_a.size).map do |row|
        led(row.name, row.bytes ? "#{Units.bytes(row.bytes)} in #{Units.count(row.count)}" : Units.count(row.count))
      end
    end

    def led(name, amount)
      name = Names.printable(name)
      name = "...#{name[-77..]}" if name.size > 80
      "#{name} #{amount}"
    end
  end
end
