# frozen_string_literal: true

require_relative "fragmentation"

module Memintro
  # The figures of this process for a line of {MemoryLog}, at one time. Each field of {FIELDS} is a method.
  # @api private
  class MemoryReading
    # The fields of a line in its order, by the names that they have in logfmt and JSON, and how the article's dialect
    # writes each: its own name, and a format in that dialect's units. A plot takes the numbers alone, so that megabytes
    # are always megabytes of 1,024 kilobytes, and objects always millions.
    FIELDS = {
      rss_bytes: ["rss", ->(bytes) { megabytes(bytes) }],
      live_objects: ["live_objects", ->(count) { "#{millions(count)} Million" }],
      malloc_live_bytes: ["malloc_live", ->(bytes) { megabytes(bytes) }],
      malloc_live_bytes_standard_error: [nil, ->(bytes) { " (estimate ±#{megabytes(bytes)})" }],
      gc_count: ["gc_count", ->(count) { count.to_s }],
      gc_ms: ["gc_time", ->(milliseconds) { "#{milliseconds} ms" }],
      fragmentation_bytes: ["fragmentation", ->(bytes) { megabytes(bytes) }]
    }.freeze
    # Fields of a line without details.
    BRIEF = %i[rss_bytes live_objects].freeze
    # The text for figures while nothing is tracked. It is neither absent nor zero, so that the reader sees why.
    OFF = { malloc_live_bytes: "off" }.freeze

    class << self
      # @return [String] such as `1.5 MB`
      def megabytes(bytes) = format("%.1f MB", bytes / 1_048_576.0)

      # @return [String] with one digit behind the point at least, three at most
      def millions(count)
        format("%.3f", count / 1_000_000.0).sub(/(\.\d)0{1,2}\z/, '\1').sub(/(\.\d\d)0\z/, '\1')
      end
    end

    # @return [Integer]
    attr_reader :rss_bytes, :live_objects, :pid
    # @return [Integer, nil] nil without details; the first three also where nothing is tracked or all is exact
    attr_reader :malloc_live_bytes, :malloc_live_bytes_standard_error, :gc_count
    # @return [Float, nil] milliseconds that the collector worked since the line before
    attr_reader :gc_ms
    # @return [Integer, nil] resident bytes that malloc has free; nil if not asked for, or unknown
    attr_reader :fragmentation_bytes

    # @param details [Boolean]
    # @param gc_ms [Float, nil]
    # @param fragmentation [Boolean]
    def initialize(details, gc_ms = nil, fragmentation: false)
      @pid = Native.kernel_pid
      @rss_bytes = Memintro.rss
      @live_objects = GC.stat(:heap_live_slots)
      @details = details
      @fragmentation_bytes = Fragmentation.bytes if fragmentation
      return unless details

      @gc_count = GC.count
      @gc_ms = gc_ms&.round(1)
      take_totals(Memintro.totals) if Memintro.tracking?
    end

    # @return [String] the whole line in the dialect of the article that memintro comes from
    def article
      head = "MEMORY[#{pid}]: time: #{Time.now.strftime('%Y-%m-%d %H:%M:%S %z')} "
      fields = @details ? FIELDS : FIELDS.slice(*BRIEF, :fragmentation_bytes)
      fields.each_with_object(head).with_index do |((field, (name, text)), line), index|
        value = public_send(field)
        shown = value.nil? ? OFF[field] : MemoryReading.instance_exec(value, &text)
        next if shown.nil?

        line << (index.zero? ? "" : ", ") << "#{name}: " if name
        line << shown
      end
    end

    private

    def take_totals(totals)
      @malloc_live_bytes = totals.live_bytes
      @malloc_live_bytes_standard_error = totals.live_bytes_standard_error if totals.estimated?
    end
  end
end
