# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../heap/survey"
require_relative "../support/json_text"
require_relative "../support/list"
require_relative "../support/process_facts"

module Memintro
  class Snapshot
    # Collects what a snapshot holds. The light part reads counters that exist anyway. Each other part walks something;
    # {COSTS} says how long that takes. The parts that walk the heap share one walk.
    #
    # {take} returns rows as Ruby objects. {json} returns JSON for callers outside the process: the extension makes its
    # lists, so that a process of any size makes almost no object for it.
    module Parts
      # The parts, with their costs.
      COSTS = {
        pss: "proportional and private memory: the kernel walks the page tables, 0.5 ms in a small process, 40 ms " \
             "for each GiB",
        account: "where the resident memory is: a copy of the process counts, 0.2 s for each GiB and 40 ns an " \
                 "object; the process stands still for up to 34 ms of each GiB",
        sites: "all call sites instead of the first 100: a microsecond each",
        types: "objects by Ruby's own types: a walk of the heap, 10 ns a slot",
        classes: "objects by class: a walk of the heap, 30 ns an object, and 5 µs for each class",
        iseqs: "instruction sequences by file and by line: a walk of the heap, 10 ns an object, and 2 µs for each line",
        internals: "objects that only the VM sees, by kind: a walk of the heap, 10 ns an object",
        occupancy: "how full the heap's pages are: a walk of the heap, 10 ns an object"
      }.freeze
      # Names of the parts, in the order in which they are taken.
      ALL = COSTS.keys.freeze
      # What `:all` means. An account makes some 3,000 objects in the process, and a copy of it: only who names it has
      # it.
      USUAL = (ALL - [:account]).freeze
      # Call sites of a light snapshot.
      SITES = 100
      # Figures of memory that cost microseconds, and the methods of {Memintro} that give them.
      MEMORY = { rss_bytes: :rss, peak_rss_bytes: :peak_rss, swap_bytes: :swap, vsize_bytes: :vsize }.freeze
      # Those of {COSTS}' `pss`.
      SHARED = { pss_bytes: :pss, uss_bytes: :uss }.freeze
      # Version of the file; changes when a key changes its meaning or goes away.
      LAYOUT = 1
      # Rows that are made and read before other threads may run.
      SLICE = 2000
      private_constant :MEMORY, :SHARED, :SLICE

      # @param parts [Array<Symbol>] as given
      # @return [Array<Symbol>] without doubles, in order
      # @raise [ArgumentError, TypeError]
      def self.check(parts)
        named = parts.map { |part| Arguments.choice(:part, part, [:all, *ALL]) }
        named += USUAL if named.include?(:all)
        ALL & named
      end

      # @param wanted [Array<Symbol>] see {check}
      # @param strict [Boolean] whether a part that cannot be had is an error, else it is named in `missing`
      # @return [Hash{Symbol => Object}] arguments of {Snapshot.new}
      def self.take(wanted, strict:)
        # Loaded before the walk, because code that is loaded later would be counted. Signal handlers cannot autoload.
        Loader.need(:Occupancy)
        data = light(wanted, strict)
        data[:sites] = CallSites.take(most: most_sites(wanted), by: Memintro.default_figure)
        data[:sites].process.merge!(identity)
        survey = survey_heap(wanted, data, strict)
        (HeapSurvey::PARTS & wanted - data[:missing].keys).each do |part|
          data[part] = send(:"rows_of_#{part}", survey, data[:gc])
        end
        data
      ensure
        survey&.clear
      end

      # Returns the same as {take}, in the form of a file.
      #
      # @param wanted [Array<Symbol>] see {check}
      # @param strict [Boolean] see {take}
      # @param settles [Boolean] collect garbage first, and count only objects that outlived one
      # @return [Native::JSONDocument]
      def self.json(wanted, strict:, settles: false)
        # The rest follows at once, without the garbage of a busy process.
        early = { missing: {}, gc: GC.stat }
        survey = survey_heap(wanted, early, strict, :outlived) if settles && !HeapSurvey.tells_outlived?
        GC.start if settles && !survey
        data = light(wanted, strict)
        data.merge!(gc: early[:gc]) if survey
        data[:missing].merge!(early[:missing])
        totals, process = CallSites.head
        report = Native::Report.take(ProcessFacts.now, Memintro.default_figure, most_sites(wanted), nil, false)
        survey ||= survey_heap(wanted, data, strict, (:outlived if settles)) || Native::HeapSurvey.new([], [])
        head = { memintro_snapshot: LAYOUT, version: CallSites::LAYOUT,
                 **data, time: time(data[:time]).strftime("%FT%T.%3NZ"), process: process.merge!(identity),
                 totals: totals.to_h, call_sites_left_out: report.left_out.first }
        Native::JSONDocument.snapshot(ordered(head), report, survey, free_pages(data[:gc]))
      ensure
        [report, survey].compact.each(&:clear)
      end

      # @param seconds [Float]
      # @return [Time] in whole milliseconds, as files have them: what is loaded again equals what was saved
      def self.time(seconds)
        Time.at(0, (seconds * 1000).round, :millisecond).utc
      end

      # Figures that cost almost nothing, and the kernel's.
      def self.light(wanted, strict)
        missing = {}
        data = { time: Time.now.to_f, monotonic_s: Process.clock_gettime(Process::CLOCK_MONOTONIC), parts: wanted,
                 missing: missing, memory: figures(MEMORY, missing, false), cgroup: cgroup(missing), gc: GC.stat,
                 gc_heaps: gc_heaps, account: nil, account_private: nil }
        data[:memory].merge!(figures(SHARED, missing, strict)) if wanted.include?(:pss)
        add_account(data, attempt(:account, missing, strict) { Memintro.account }) if wanted.include?(:account)
        data
      end
      private_class_method :light

      # RSS is the account's own: both are of one instant, and the rows add up to it.
      def self.add_account(data, account)
        return unless account

        rows = account.rows
        data[:account] = rows.to_h { |row| [row.name, row.bytes] }
        own = rows.to_h { |row| [row.name, row.private_bytes] }.compact
        data[:account_private] = own unless own.empty?
        data[:memory][:rss_bytes] = account.rss
        data[:memory][:peak_rss_bytes] = [data[:memory][:peak_rss_bytes].to_i, account.rss].max
      end
      private_class_method :add_account

      # Keys of the file before its lists.
      def self.ordered(head)
        keys = %i[memintro_snapshot version time monotonic_s parts missing process memory account account_private
                  cgroup gc gc_heaps totals call_sites_left_out]
        head.slice(*keys)
      end
      private_class_method :ordered

      def self.most_sites(wanted)
        wanted.include?(:sites) ? nil : SITES
      end
      private_class_method :most_sites

      # @return [Native::HeapSurvey, nil] nil: no part needs one, or there is none
      def self.survey_heap(wanted, data, strict, only = nil)
        parts = (HeapSurvey::PARTS & wanted).select do |part|
          attempt(part, data[:missing], strict) { Native::HeapSurvey.check(part) || true }
        end
        return if parts.empty?

        HeapSurvey.take([*parts, *only], data[:gc])
      rescue Memintro::Error => e
        raise if strict

        parts.each { |part| data[:missing][part] = e.message.lines.first.to_s.chomp }
        nil
      end
      private_class_method :survey_heap

      def self.figures(methods, missing, strict)
        methods.each_with_object({}) do |(name, method), found|
          value = attempt(name, missing, strict) { Memintro.public_send(method) }
          found[name] = value if value
        end
      end
      private_class_method :figures

      def self.attempt(name, missing, strict)
        value = yield
        raise Error, "#{name} is not available on this system" if value.nil?

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

      # The kernel may reuse a process id. Together with the time of its start, it is unique.
      def self.identity
        { epoch: Memintro.epoch, started: started }
      end
      private_class_method :identity

      # @return [Integer, nil] when the process was started, in kernel ticks since the machine was booted
      def self.started
        # The name before the fields may hold anything, even parentheses.
        Integer(File.binread("/proc/self/stat").rpartition(")").last.split[19], exception: false)
      rescue SystemCallError
        nil
      end
      private_class_method :started

      def self.rows_of_types(survey, _) = rows_of(survey, :types)
      def self.rows_of_classes(survey, _) = rows_of(survey, :classes)
      def self.rows_of_internals(survey, _) = rows_of(survey, :internals)

      def self.rows_of_iseqs(survey, _)
        count, bytes = survey.iseq_totals
        { count: count, bytes: bytes, paths: rows_of(survey, :paths), locations: rows_of(survey, :locations) }
      end

      def self.rows_of_occupancy(survey, counters)
        holders = []
        survey.rows(:occupancy) { |slice| slice.each { |row| holders << Occupancy::Holder.new(*row) } }
        pools = survey.pools
        plain(Occupancy.new(List.new(pools.map { |pool| Occupancy::Pool.new(*pool.first(6)) }), List.new(holders),
                            pools.sum(&:last) + free_pages(counters)).to_h)
      end
      private_class_method :rows_of_types, :rows_of_classes, :rows_of_internals, :rows_of_iseqs, :rows_of_occupancy

      # Pages without any object, which the walk does not visit.
      def self.free_pages(stat)
        stat.fetch(:heap_tomb_pages, 0) + stat.fetch(:heap_empty_pages, 0)
      end
      private_class_method :free_pages

      # The rows are already sorted, largest first.
      def self.rows_of(survey, list)
        made = []
        survey.rows(list) do |slice|
          Thread.pass
          slice.each { |name, count, bytes| made << Snapshot::Row.new(JsonText.normal(name).freeze, count, bytes) }
        end
        List.new(made)
      end
      private_class_method :rows_of

      # Sorts by one Integer for each row: other threads wait meanwhile, and comparing arrays takes ten times as long.
      # @param triples [Array<Array(String, Integer, Integer)>]
      # @return [Array<Array(String, Integer, Integer)>] greatest first, the earlier one where they are equal
      def self.sorted(triples)
        place = 0
        triples.sort_by { |_, count, bytes| (-(bytes || count) * (1 << 24)) + (place += 1) }
      end

      # @param list [Array] greatest first, of triples as above
      # @return [List<Row>] the same
      def self.rows(list)
        made = []
        with_turns(list) do |slice|
          slice.each { |name, count, bytes| made << Snapshot::Row.new(JsonText.normal(name).freeze, count, bytes) }
        end
        List.new(made)
      end

      # Lets other threads run before each slice but the first.
      def self.with_turns(list)
        list.each_slice(SLICE).with_index do |slice, index|
          Thread.pass if index.positive?
          yield slice
        end
      end
      private_class_method :with_turns

      # Converts value objects, and lists of them, into hashes and arrays.
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
