# frozen_string_literal: true

require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/table"
require_relative "../support/units"

module Memintro
  # The text of a measurement.
  # @api private
  class MeasurementText
    # The rows of the table: titles, and the figures that they show.
    ROWS = {
      "bytes allocated" => :allocated_bytes, "bytes freed" => :freed_bytes, "bytes retained" => :retained_bytes,
      "allocations" => :allocations, "frees" => :frees, "blocks retained" => :retained_blocks,
      "objects made" => :objects_allocated, "objects freed" => :objects_freed, "objects retained" => :objects_retained
    }.freeze
    # Nanoseconds from which on the next unit is used.
    TIMES = { 1_000_000_000 => "s", 1_000_000 => "ms", 1_000 => "µs" }.freeze
    private_constant :ROWS, :TIMES

    # @param nanoseconds [Numeric]
    # @return [String] such as `"3.1 ms"`
    def self.time(nanoseconds)
      unit, name = TIMES.find { |size, _| nanoseconds >= size }
      unit ? format("%.1f %s", nanoseconds.fdiv(unit), name) : "#{nanoseconds.round} ns"
    end

    # @param measurement [Measurement]
    def initialize(measurement)
      @measurement = measurement
      @names = Names.new(Memintro.configuration.app_root)
      @style = Style.new(false)
    end

    # @return [String] one sentence or some
    def answer
      "#{[*malloc, *objects, time].join('; ')}."
    end

    # @return [Array<String>]
    def lines
      [answer, "", *table, *notes, *sites("most bytes allocated", @measurement.top_allocated),
       *sites("most bytes retained", @measurement.top_retained)]
    end

    private

    def malloc
      return if @measurement.allocated_bytes.nil?

      text = "#{Units.bytes(@measurement.allocated_bytes)} allocated in #{blocks(@measurement.allocations)}, " \
             "#{Units.bytes(@measurement.retained_bytes)} retained"
      @measurement.retained_blocks.zero? ? text : "#{text} in #{blocks(@measurement.retained_blocks)}"
    end

    def blocks(count) = Units.counted(count, "block")

    def objects
      return if @measurement.objects_allocated.nil?

      "#{Units.counted(@measurement.objects_allocated, 'object')} made, " \
        "#{Units.count(@measurement.objects_retained)} retained"
    end

    def time
      text = MeasurementText.time(@measurement.wall_ns)
      count = @measurement.gc_count
      return text if count.zero?

      spent = @measurement.gc_time_ns
      text << ", #{Units.counted(count, 'GC')} in it"
      spent ? text << " that took #{MeasurementText.time(spent)}" : text
    end

    def table
      rows = ROWS.filter_map do |title, name|
        figures = [@measurement[name], @measurement[:"process_#{name}"]]
        next if figures.none?

        [*figures.map { |figure| name.to_s.include?("bytes") ? Units.bytes(figure) : Units.count(figure) }, title]
      end
      rows << ["#{MeasurementText.time(@measurement.cpu_ns)} CPU", MeasurementText.time(@measurement.wall_ns), "time"]
      rows << ["", "#{@measurement.minor_gc_count} minor, #{@measurement.major_gc_count} major", "GCs"]
      Table.new(["this thread", "process"], "", rows).lines(@style).map(&:rstrip)
    end

    def notes
      @measurement.notes.flat_map { |note| ["", "note: #{note}"] }
    end

    def sites(title, sites)
      return [] if sites.empty?

      rows = sites.map do |site|
        [Units.bytes(site.allocated_bytes), Units.count(site.allocations), Units.bytes(site.retained_bytes),
         Units.count(site.retained_blocks), @names.short(site)]
      end
      ["", "#{title}, by this thread:",
       *Table.new(%w[allocated blocks live blocks], "call site", rows).lines(@style)]
    end
  end
end
