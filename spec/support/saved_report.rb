# frozen_string_literal: true

require "json"
require "memintro"
require "memintro/malloc/call_sites"
require "memintro/report/report"
require "memintro/support/json_text"
require "stringio"
require_relative "fake_native"

# Reports of figures that are easy to check by head, by the way of a file.
module SavedReport
  PROCESS = { pid: 42, program: "leak.rb", ruby: "3.1.2", memintro: "0.1.0", mode: :full, tracking: true,
              preloaded: true, time: "2024-05-06T07:08:09Z" }.freeze

  module_function

  # rows: as of SiteRow. totals: as of Totals.new.
  def text(rows: FakeNative::ROWS, totals: FakeNative::TOTALS.first(7), process: PROCESS, **more)
    sites = rows.map { |row| site(Memintro::CallSite.new(row)) }
    Memintro::JsonText.line({ version: 1, process: process, totals: Memintro::Totals.new(*totals).to_h,
                              call_sites: sites, **more })
  end

  def site(site)
    old = { old_bytes: site.old_bytes, old_blocks: site.old_blocks } if site.old_bytes
    site.saved.merge(old || {})
  end

  # The members of whole stacks. stacks: rows as of SiteRow, each with its frames, [path, line, label], the innermost
  # first; nil: it has none.
  def whole(stacks)
    frames = stacks.flat_map { |_, of| of || [] }.uniq
    rows = stacks.map do |row, of|
      kind, name, line, *values = row[Memintro::SiteRow::KIND..Memintro::SiteRow::MARKED_BYTES]
      doubts, old, objects = %i[VARIANCES OLD OBJECTS].map { |at| row[Memintro::SiteRow.const_get(at)] }
      [kind, name, line, *cells(values, doubts || []), doubts&.last, old && cells(old.first(2), old.drop(2)),
       objects && cells(objects.first(7), objects.drop(7)), of&.map { |one| frames.index(one) }]
    end
    { frames: frames, stacks: rows }
  end

  # Figures, or lists of value, variance and skew.
  def cells(values, doubts)
    values.zip(doubts.each_slice(2)).map { |value, pair| pair ? [value, *pair] : value }
  end

  def read(**figures) = Memintro::Native::Report.read(text(**figures))

  # As `memintro report FILE` writes it.
  def written(report, io = StringIO.new, **options)
    Memintro::Report.write(report, io, **options)
    io.string
  end

  def json(report, **options) = JSON.parse(written(report, format: :json, top: nil, **options))
end
