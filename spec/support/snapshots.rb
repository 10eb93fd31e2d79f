# frozen_string_literal: true

require_relative "fake_native"
require "memintro"
require "memintro/malloc/call_sites"

# Snapshots with figures that are easy to check by head, made without a process to look at.
module Snapshots
  GC_STAT = { count: 10, time: 120, minor_gc_count: 8, major_gc_count: 2, heap_live_slots: 40_000 }.freeze
  PROCESS = { pid: 4711, program: "app.rb", ruby: "3.1.2", platform: "x86_64-linux-gnu", memintro: "0.1.0",
              mode: :full, tracking: true, preloaded: false, generation: 10, time: "2026-11-22T12:00:00Z", epoch: 1,
              started: 10_050 }.freeze

  module_function

  # seconds: after the first. sites: { name => [live bytes, live blocks] }, with objects [.., bytes of slots, objects].
  # Lists: { name => [count, bytes] }.
  def snapshot(seconds = 0, rss: 50 * 2**20, gc: {}, sites: {}, left_out: 0, process: {}, **lists)
    Memintro::Snapshot.new(
      time: Time.utc(2026, 11, 22, 12).to_f + seconds, monotonic_s: 1000.0 + seconds,
      memory: { rss_bytes: rss, peak_rss_bytes: 60 * 2**20 }, cgroup: nil, gc: GC_STAT.merge(gc), gc_heaps: nil,
      sites: call_sites(sites, left_out, process), parts: lists.keys, missing: {},
      **lists.to_h { |name, list| [name, name == :iseqs ? iseqs(list) : rows(list)] }
    )
  end

  def call_sites(sites, left_out, process)
    rows = sites.each_with_index.map do |(name, (bytes, blocks, slots, objects)), id|
      path, _, line = name.rpartition(":")
      [id, :ruby, path, line.to_i, blocks, 0, bytes, 0, 0, 0, 0, nil, nil, ([objects, 0, slots, 0, 0, 0, 0] if slots)]
    end
    live, blocks = [0, 1].map { |at| sites.values.sum { |figures| figures[at] } }
    totals = Memintro::Totals.new(live, 0, blocks, 0, 0, 0, 0)
    Memintro::CallSites.new(totals, rows, PROCESS.merge(process)).tap { |made| made.leave_out(left_out) }
  end

  def iseqs(paths)
    { count: paths.values.sum(&:first), bytes: paths.values.sum(&:last), paths: rows(paths), locations: rows(paths) }
  end

  def rows(list)
    Memintro::Snapshot::Parts.rows(list.map { |name, (count, bytes)| [name, count, bytes] })
  end
end

RSpec.configure { |config| config.include Snapshots } if defined?(RSpec)
