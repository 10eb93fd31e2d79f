# frozen_string_literal: true

require_relative "../call_sites"
require_relative "../json_text"
require_relative "../list"

module Memintro
  class Snapshot
    # Gathers what a snapshot holds. The light part reads counters that are kept anyway; each part beyond it walks
    # something and says in {COSTS} how long that takes.
    module Parts
      # What can be asked for, and what it costs.
      COSTS = {
        pss: "proportional and private memory: the kernel walks the page tables, 0.5 ms in a small process, 40 ms " \
             "for each GiB",
        sites: "all call sites instead of the first 100: a microsecond each",
        types: "objects by Ruby's own types: a walk of the heap, 10 ns a slot",
        classes: "objects by class: a walk of the heap, 30 ns an object, and 5 µs for each class",
        iseqs: "instruction sequences by file and by line: a walk of the heap, 10 ns an object, and 2 µs for each line",
        internals: "objects that only the VM sees, by kind: a walk of the heap, 10 ns an object; with classes none",
        occupancy: "how full the heap's pages are: a walk of the heap, 10 ns an object"
      }.freeze
      # Names of the parts, in the order in which they are taken.
      ALL = COSTS.keys.freeze
      # Call sites of a light snapshot.
      SITES = 100
      # Figures of memory that cost microseconds, and the methods of {Memintro} that give them.
      MEMORY = { rss_bytes: :rss, peak_rss_bytes: :peak_rss, swap_bytes: :swap, vsize_bytes: :vsize }.freeze
      # Those of {COSTS}' `pss`.
      SHARED = { pss_bytes: :pss, uss_bytes: :uss }.freeze
      # Rows made, and looked at, before other threads have their turn.
      SLICE = 2000
      private_constant :MEMORY, :SHARED, :SLICE

      # @param parts [Array<Symbol>] as given
      # @return [Array<Symbol>] without doubles, in order
      # @raise [ArgumentError, TypeError]
      def self.check(parts)
        return ALL if parts.any? { |part| Arguments.choice(:part, part, [:all, *ALL]) == :all }

        ALL & parts.map(&:to_sym)
      end

      # @param wanted [Array<Symbol>] see {check}
      # @param strict [Boolean] whether a part that cannot be had is an error, else it is named in `missing`
      # @return [Hash{Symbol => Object}] what {Snapshot.new} takes
      def self.take(wanted, strict:)
        missing = {}
        data = { time: Time.now.to_f, monotonic_s: Process.clock_gettime(Process::CLOCK_MONOTONIC),
                 memory: figures(MEMORY, missing, false), cgroup: cgroup(missing), gc: GC.stat, gc_heaps: gc_heaps,
                 sites: sites(wanted.include?(:sites)), parts: wanted, missing: missing }
        take_occupancy(data, missing, strict) if wanted.include?(:occupancy)
        data[:memory].merge!(figures(SHARED, missing, strict)) if wanted.include?(:pss)
        (wanted - %i[sites pss occupancy]).each do |part|
          data[part] = attempt(part, missing, strict) do
            part == :internals ? internals(data) : send(:"take_#{part}")
          end
        end
        data
      end

      def self.figures(methods, missing, strict)
        methods.each_with_object({}) do |(name, method), found|
          value = attempt(name, missing, strict) { Memintro.public_send(method) }
          found[name] = value if value
        end
      end
      private_class_method :figures

      def self.attempt(name, missing, strict)
        value = yield
        raise Error, "#{name} is not known here" if value.nil?

        value
      rescue Memintro::Error, SystemCallError, NotImplementedError => e
        raise if strict

        missing[name] = e.message.lines.first.to_s.chomp
        nil
      end
      private_class_method :attempt

      def self.cgroup(missing)
        Memintro.cgroup&.to_h if Memintro.respond_to?(:cgroup)
      rescue Memintro::Error, SystemCallError => e
        missing[:cgroup] = e.message.lines.first.to_s.chomp
        nil
      end
      private_class_method :cgroup

      def self.gc_heaps
        GC.stat_heap if GC.respond_to?(:stat_heap)
      end
      private_class_method :gc_heaps

      # A process id may be given to another process; together with its start it names one for good.
      def self.sites(all)
        sites = CallSites.take(most: all ? nil : SITES)
        sites.process.merge!(epoch: Memintro.epoch, started: started)
        sites
      end
      private_class_method :sites

      # @return [Integer, nil] when the process was started, in the kernel's ticks since the machine was
      def self.started
        # The name before the fields may hold anything, even parentheses.
        Integer(File.binread("/proc/self/stat").rpartition(")").last.split[19], exception: false)
      rescue SystemCallError
        nil
      end
      private_class_method :started

      def self.take_types
        counts = ObjectSpace.count_objects
        rows(sorted(counts.reject { |type, _| %i[TOTAL FREE].include?(type) }.map { |type, count| [type, count, nil] }))
      end

      def self.take_classes = rows_of(Memintro.histogram)

      # With the collector's counters of that instant, and before the snapshot itself makes objects.
      def self.take_occupancy(data, missing, strict)
        data[:occupancy] = attempt(:occupancy, missing, strict) do
          occupancy, data[:gc] = Memintro.occupancy_and_counters
          plain(occupancy.to_h)
        end
      end

      def self.take_iseqs
        locations = rows_of(Memintro.top_iseqs(nil, by: :location))
        { count: locations.sum(&:count), bytes: locations.sum(&:bytes), paths: paths(locations), locations: locations }
      end
      private_class_method :take_types, :take_classes, :take_occupancy, :take_iseqs

      # One walk is enough for both.
      def self.paths(locations)
        sums = {}
        with_turns(locations) do |slice|
          slice.each do |row|
            sum = (sums[row.name.b.rpartition(":").first] ||= [0, 0])
            sum[0] += row.count
            sum[1] += row.bytes
          end
        end
        rows(sorted(sums.map { |path, sum| [path, *sum] }))
      end
      private_class_method :paths

      # The histogram has them, under the same names.
      def self.internals(data)
        return rows_of(Memintro.internals) unless data[:classes]

        List.new(data[:classes].select { |row| row.name.start_with?("imemo_") })
      end
      private_class_method :internals

      # What the walks answer is greatest first already.
      def self.rows_of(list)
        rows(list) { |row| [row.name, row.count, row.bytes] }
      end
      private_class_method :rows_of

      # By one Integer each: nobody else runs while they are sorted, and comparing arrays takes ten times as long.
      # @param triples [Array<Array(String, Integer, Integer)>]
      # @return [Array<Array(String, Integer, Integer)>] greatest first, the earlier one where they are equal
      def self.sorted(triples)
        place = 0
        triples.sort_by { |_, count, bytes| (-(bytes || count) * (1 << 24)) + (place += 1) }
      end

      # @param list [Array] greatest first: of triples as above, or of what the block makes triples of
      # @return [List<Row>] the same
      def self.rows(list)
        made = []
        with_turns(list) do |slice|
          slice.each do |item|
            name, count, bytes = block_given? ? yield(item) : item
            made << Row.new(JsonText.normal(name).freeze, count, bytes)
          end
        end
        List.new(made)
      end

      # Others have their turn before all slices but the first.
      def self.with_turns(list)
        list.each_slice(SLICE).with_index do |slice, index|
          Thread.pass if index.positive?
          yield slice
        end
      end
      private_class_method :with_turns

      # Value objects and lists of them as what they hold.
      # @return [Object]
      def self.plain(value)
        case value
        when Hash then value.transform_values { |item| plain(item) }
        when Array then value.to_a.map { |item| plain(item) }
        when String, Symbol, Numeric, true, false, nil then value
        else value.respond_to?(:to_h) ? plain(value.to_h) : value.to_s
        end
      end
    end
  end
end
