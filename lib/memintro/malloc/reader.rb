# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "call_sites"
require_relative "../support/json_text"

module Memintro
  class CallSites
    # Makes a {CallSites} from a file: a JSON report, or the raw dump of a process that could not write a report.
    module Reader
      # First bytes of a raw dump.
      MAGIC = "MEMINTR".b.freeze
      # Figures of a JSON report that a row holds, in the row's order.
      ROW = [*Figures::SUMS, *Figures::MAXIMA].map(&:name).freeze
      # Figures that {Totals.new} takes, in its order.
      TOTALS = Figures::OF_PROCESS.map(&:name).freeze
      # What a call site can be.
      KINDS = %i[ruby native pseudo].freeze
      # Figures of which a row holds the variance.
      VARIANCES = SiteRow::SUMS.map(&:name).freeze
      # For each of these, the index of the figure whose samples say what one stands for: growth has the same sample as
      # bytes, and of ages only the variance is known.
      ORIGINS = SiteRow::SUMS.map do |name|
        figure = Figures[name]
        SiteRow::SUMS.index(figure.bytes? ? :total_bytes : :allocations) unless figure.age?
      end.freeze
      # Standard errors of what is live.
      OLD_ERRORS = %w[live_bytes_standard_error live_blocks_standard_error].freeze
      # Figures of objects that are old enough.
      OLD_OBJECTS = %w[object_bytes live_objects].freeze
      # Standard errors of these.
      OLD_OBJECT_ERRORS = %w[object_bytes_standard_error live_objects_standard_error].freeze
      private_constant :OLD_ERRORS, :OLD_OBJECTS, :OLD_OBJECT_ERRORS, :MAGIC, :ROW, :TOTALS, :KINDS, :VARIANCES,
                       :ORIGINS

      # @param path [String]
      # @return [CallSites]
      # @raise [DumpError] if it is neither
      # @raise [SystemCallError] if it cannot be read
      def self.read(path)
        start = File.binread(path, MAGIC.size).to_s
        return from_dump(Native.read_dump(path)) if start == MAGIC
        return from_json(JsonText.parse(File.binread(path))) if start.start_with?("{")

        raise DumpError, "neither a raw dump nor a JSON report of memintro (a text report can be read as it is)"
      rescue JsonText::Invalid
        raise DumpError, "begins like a JSON report, but is not valid JSON; was it cut short?"
      end

      # @param dump [Hash] see Memintro::Native.read_dump
      # @return [CallSites]
      def self.from_dump(dump)
        signal = dump[:signal].to_i
        process = { pid: dump[:pid], memintro: VERSION, generation: Totals.generation_of(dump[:totals]),
                    time: Time.at(dump[:time]).utc.strftime("%FT%TZ"),
                    signal: signal, exit_status: signal.zero? ? dump[:exit_status] : nil }
        process[:sample_bytes] = dump[:sample_bytes] if dump[:sample_bytes].to_i.positive?
        totals = Totals.of(dump[:totals])
        stacks = CallSites.new(totals, dump[:stacks], process) if dump[:stacks]
        CallSites.new(totals, dump[:sites], process, nil, stacks)
      end

      # @param report [Hash] a parsed report
      # @return [CallSites]
      # @raise [DumpError] if its layout is another
      def self.from_json(report)
        version = report["version"]
        unless version == LAYOUT
          raise DumpError, "the report has layout #{version.inspect}, and memintro #{VERSION} reads layout " \
                           "#{LAYOUT}; use the version that wrote it, or a newer one"
        end

        rows = part(report, "call_sites", Array).each_with_index.map { |site, id| row(site, id) }
        totals = totals_of(part(report, "totals", Hash))
        process = process_of(part(report, "process", Hash))
        CallSites.new(totals, rows, process, nil, (stacks(report, totals, process) if report.key?("stacks")))
      end

      # @param answer [Hash] with call sites of which only blocks and objects of some age count as live
      # @return [Array<CallSite>]
      # @raise [DumpError] if it is something else
      def self.old_sites(answer)
        part(answer, "call_sites", Array).each_with_index.map do |site, id|
          live = numbers(site, %w[live_bytes live_blocks], "call site #{id + 1}")
          errors = site["estimated"] ? numbers(site, OLD_ERRORS, "call site #{id + 1}").map { |error| error**2 } : []
          CallSite.new(row(site, id), [*live, *errors], nil, old_objects(site, "call site #{id + 1}"))
        end
      end

      def self.old_objects(site, where)
        return unless site["objects"]

        errors = site["objects"]["allocations_variance"] ? numbers(site, OLD_OBJECT_ERRORS, where) : []
        [*numbers(site, OLD_OBJECTS, where), *errors.map { |error| error**2 }]
      end
      private_class_method :old_objects

      def self.part(report, name, type)
        return report[name] if report[name].is_a?(type)

        raise DumpError, "not a report of memintro: it has no #{name}"
      end
      private_class_method :part

      def self.row(site, id)
        where = "call site #{id + 1}"
        raise DumpError, "not a report of memintro: #{where} is #{Arguments.shown(site)}" unless site.is_a?(Hash)

        kind = site["kind"].to_s.to_sym
        name = site[kind == :ruby ? "path" : "name"]
        unless KINDS.include?(kind) && name.is_a?(String)
          raise DumpError, "not a report of memintro: #{where} has no kind or no name"
        end

        live, growth = numbers(site, %w[live_bytes growth], where)
        [id, kind, name, site["lineno"].to_i, *numbers(site, ROW, where), live - growth,
         variances = variances(site, where), old(site, variances), objects(site, where), native_callers(site)]
      end
      private_class_method :row

      # Rows as {Report::Json} writes them.
      def self.stacks(report, totals, process)
        frames = part(report, "frames", Array)
        rows = part(report, "stacks", Array).each_with_index.map do |row, id|
          where = "stack #{id + 1}"
          raise DumpError, "not a whole report of memintro: #{where} is #{Arguments.shown(row)}" unless stack?(row)

          kind, name, *figures, variances, old, objects, numbers = row
          stack = numbers&.map { |number| frame(frames, number, where) }
          [id, kind.to_sym, name, *figures, variances, old, objects, nil, *([stack.freeze] if stack)]
        end
        CallSites.new(totals, rows, process)
      end
      private_class_method :stacks

      # How many of a row's values are figures, with the line: those up to the marked bytes.
      FIGURES = SiteRow::MARKED_BYTES - SiteRow::NAME
      private_constant :FIGURES

      def self.stack?(row)
        return false unless row.is_a?(Array) && row.size == SiteRow::STACK_FIGURES && KINDS.include?(row[0].to_s.to_sym)

        figures = row[2, FIGURES]
        lists = row.drop(2 + FIGURES)
        row[1].is_a?(String) && figures.all?(Numeric) &&
          lists.all? { |list| list.nil? || (list.is_a?(Array) && list.all?(Numeric)) }
      end
      private_class_method :stack?

      def self.frame(frames, number, where)
        frame = frames[number] if number.is_a?(Integer) && number >= 0
        path, line, label = frame if frame.is_a?(Array)
        return frame if path.is_a?(String) && line.is_a?(Integer) && (label.nil? || label.is_a?(String))

        raise DumpError, "not a whole report of memintro: #{where} has no frame #{Arguments.shown(number)}"
      end
      private_class_method :frame

      # Texts, numbers, true, false and null are all that a process says of itself.
      def self.process_of(found)
        found.each do |name, value|
          next unless value.is_a?(Hash) || value.is_a?(Array)

          raise DumpError, "not a report of memintro: its process has #{Arguments.shown(value)} for #{name.inspect}"
        end
        found.transform_keys(&:to_sym)
      end
      private_class_method :process_of

      def self.totals_of(figures)
        variances = (doubts(figures, TOTALS.first(4), [0, 0, 2, 2], "totals").flatten if figures["estimated"])
        Totals.new(*numbers(figures, TOTALS, "totals"), variances)
      end
      private_class_method :totals_of

      # Reads what {Estimates#standard_error} is computed from.
      #
      # @param figures [Hash] of the report
      # @param names [Array<Symbol>] of the estimates
      # @param origins [Array<Integer>] for each of the names: of which of them a sample is there, if of any
      # @param where [String] for the message, if a figure is none
      # @return [Array(Array<Float>, Array<Float>)] variances and skews
      def self.doubts(figures, names, origins, where)
        errors = numbers(figures, names.map { |name| "#{name}_standard_error" }, where)
        # Reports of older versions do not have this field.
        own = names.map { |name| figures["#{name}_per_sample"].then { |value| value.is_a?(Numeric) ? value : 0.0 } }
        per_sample = own.zip(origins).map { |value, origin| [value, origin ? own[origin] : 0.0].max }
        variances = errors.zip(per_sample).map { |error, one| [(error**2) - (one**2), 0.0].max }
        [variances, variances.zip(own).map { |variance, one| variance * one }]
      end
      private_class_method :doubts

      def self.numbers(figures, names, where)
        names.map do |name|
          next figures[name] if figures[name].is_a?(Numeric)

          raise DumpError, "not a whole report of memintro: #{where} has no number #{name.inspect}"
        end
      end
      private_class_method :numbers

      # In the form of Memintro::Native.sites. The part of a standard error that is not from the site's own sample is
      # variance.
      def self.old(site, variances)
        bytes, blocks = site.values_at("old_bytes", "old_blocks")
        return unless bytes.is_a?(Integer) && blocks.is_a?(Integer)
        return [bytes, blocks] unless variances

        errors = { "bytes" => :total_bytes, "blocks" => :allocations }.map do |unit, figure|
          error = site["old_#{unit}_standard_error"]
          variance = SiteRow.variance(variances, figure)
          per_sample = variance.positive? ? SiteRow.skew(variances, figure) / variance : 0.0
          error.is_a?(Numeric) ? [(error**2) - (per_sample**2), 0.0].max : 0.0
        end
        [bytes, blocks, *errors, 0.0, 0.0]
      end
      private_class_method :old

      # Reports of processes that did not track objects have none.
      def self.objects(site, where)
        found = site["objects"]
        return unless found.is_a?(Hash)

        columns = SiteRow::OBJECT_COLUMNS
        columns += SiteRow::OBJECT_DOUBTS if found["allocations_variance"]
        numbers(found, columns.map(&:name), "objects of #{where}")
      end
      private_class_method :objects

      # In the form of Memintro::Native.sites.
      def self.native_callers(site)
        found = site["native_callers"]
        return unless found.is_a?(Hash) && found["callers"].is_a?(Array)

        callers = found["callers"].filter_map do |one|
          next unless one.is_a?(Hash) && one["frames"].is_a?(Array) && one["frames"].all?(String)

          location = one["location"]
          [one["frames"], location.is_a?(String) ? location : nil, one["samples"].to_i, one["live_samples"].to_i,
           one["share"].to_f, one["live_share"]&.to_f]
        end
        [found["samples"].to_i, found["live_samples"].to_i, callers]
      end
      private_class_method :native_callers

      # In the form of Memintro::Native.sites; the last one is for the standard error of the mean lifespan.
      def self.variances(site, where)
        return unless site["estimated"]

        variances, skews = doubts(site, VARIANCES, ORIGINS, where)
        # Only the objects were sampled.
        return if site["objects"].is_a?(Hash) && site["objects"]["allocations_variance"] && variances.none?(&:positive?)

        mean, error = numbers(site, %w[mean_lifespan mean_lifespan_standard_error], where)
        own = (error * site["frees"])**2
        ages, frees = %i[age_total frees].map { |figure| SiteRow.variance(variances, figure) }
        covariance = mean.positive? ? (ages + (mean * mean * frees) - own) / (2 * mean) : 0.0
        [*variances, covariance, *skews.first(SiteRow::SKEWED.size)]
      end
      private_class_method :variances
    end
  end
end
