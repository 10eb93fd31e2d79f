# frozen_string_literal: true

require_relative "report"
require_relative "../support/estimates"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"
require_relative "../support/table"

module Memintro
  module Report
    # A table of call sites that counts only blocks, and objects if they are tracked, of at least some age.
    module OldSites
      # Title, figure and unit of each column.
      COLUMNS = [["live", :live_bytes, Units.method(:bytes)], ["blocks", :live_blocks, Units.method(:count)]].freeze
      # Those that come first if objects were tracked.
      OBJECTS = [["retained", :retained_bytes, Units.method(:bytes)], ["objects", :live_objects, Units.method(:count)],
                 ["in slots", :object_bytes, Units.method(:bytes)]].freeze
      private_constant :COLUMNS, :OBJECTS

      # @param sites [Array<CallSite>]
      # @param pid [Integer]
      # @param older_than_gcs [Integer]
      # @param by [Symbol, String, nil] nil: what a process sorts by of itself
      # @return [String] the line above the table
      def self.head(sites, pid, older_than_gcs, by)
        objects = sites.any?(&:object_row)
        "pid #{pid}: #{Units.counted(sites.size, 'call site')} with blocks #{'or objects ' if objects}that outlived " \
          "#{Units.counted(older_than_gcs, 'collection')}, by #{by || (objects ? :retained_bytes : :live_bytes)}"
      end

      # @param sites [Array<CallSite>]
      # @param names [Names]
      # @param style [Style]
      # @param sample_bytes [Integer, nil]
      # @return [Array<String>]
      def self.lines(sites, names, style, sample_bytes)
        columns = sites.any?(&:object_row) ? [*OBJECTS, *COLUMNS] : COLUMNS
        rows = sites.map { |site| [*columns.map { |_, figure, unit| site.shown(figure, &unit) }, names.short(site)] }
        lines = Table.new(columns.map(&:first), "call site", rows).lines(style)
        return lines unless sites.any?(&:estimated?)

        [*lines, "", style.warn("note: ") + Estimates.caution(sample_bytes)]
      end
    end
  end
end
