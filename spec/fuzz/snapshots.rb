# frozen_string_literal: true

require_relative "target"

module Fuzz
  # Files that are not quite snapshots, read and shown.
  class Snapshots < Target
    private

    def prepare
      keep = Array.new(200) { |i| "x" * i }
      small = Memintro.snapshot
      @right = [small, Memintro.snapshot(:types, :occupancy), Memintro.snapshot(:all)].map { |one|
        JSON.generate(short(JSON.parse(one.to_json)))
      }
      @other = Memintro::Snapshot::Saved.parse(@right.first)
      keep.clear
    end

    # With a few rows of each list: more take time and teach nothing.
    def short(value)
      case value
      when Hash then value.transform_values { |item| short(item) }
      when Array then value.first(6).map { |item| short(item) }
      else value
      end
    end

    def make
      @mutation.mutate("#{@mutation.pick(@right)}\n")
    end

    def try(input)
      snapshot = Memintro::Snapshot::Saved.parse(input)
      # A snapshot that was read must work in every method.
      snapshot.to_s
      snapshot.inspect
      snapshot.to_json
      (snapshot - @other).to_s
      (@other - snapshot).to_json
      Memintro::Trend.new([@other, snapshot, snapshot]).to_s
      "snapshots"
    end
  end
end
