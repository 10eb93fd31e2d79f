# frozen_string_literal: true

require "memintro/malloc/call_sites"

# Stands in for the extension where a spec is about Ruby's side only: answers fixed figures and remembers the calls.
# Use it with `stub_const("Memintro::Native", FakeNative.new(…))`.
class FakeNative
  # Two Ruby lines, a native caller and a pseudo-site, with numbers that are easy to check by head.
  ROWS = [
    [2, :pseudo, "(gc)", 0, 4, 4, 400, 400, 8, 3, 0],
    [3, :ruby, "/app/leak.rb", 12, 100_000, 50_000, 102_400_000, 51_200_000, 25_000, 2, 1_200_000],
    [4, :native, "libz.so.1(deflateInit2_+0x9c)", 0, 10, 2, 5_000, 1_000, 0, 0, 4_500],
    [5, :ruby, "/usr/lib/ruby/3.1.0/json/common.rb", 216, 3, 3, 90, 90, 0, 0, 0]
  ].freeze
  TOTALS = [102_405_490, 51_201_490, 100_017, 50_009, 0, 1_300_000, 0, 4, 7].freeze

  attr_accessor :rows, :figures, :aged, :block_list, :tracking, :start_answer
  attr_reader :calls, :depth

  def sortable?(name) = Memintro::CallSite::FIGURES.include?(name.to_sym)

  def initialize(rows: ROWS, figures: TOTALS, tracking: true)
    @real = Memintro::Native if defined?(Memintro::Native)
    @rows = rows
    @figures = figures
    @tracking = tracking
    @start_answer = :ok
    @aged = {}
    @block_list = []
    @calls = []
    @depth = 0
  end

  # Notes the settings that are not 0, by name.
  def start(mode, numbers)
    @calls << [:start, mode, Memintro::Defaults::HOOK.zip(numbers).to_h.reject { |_, number| number.zero? }]
    @tracking = true
    @start_answer
  end

  def stop
    @calls << :stop
    was = @tracking
    @tracking = false
    was
  end

  %i[mark clear reset refresh].each { |name| define_method(name) { @calls << name and nil } }

  %i[estimate site_estimate sum_of_rows total_estimate page diff trend].each do |name|
    define_method(name) { |*figures| @real.public_send(name, *figures) }
  end

  def parse_json(...) = @real.parse_json(...)
  def provided?(...) = @real.provided?(...)
  def provide(...) = @real.provide(...)
  def sources(...) = @real.sources(...)
  def load_hook = @calls << :load_hook && :loaded
  def native_callers(_wanted) = nil
  def tracking? = @tracking
  def preloaded? = false
  def stack_depth = 1
  def mode = @tracking ? :full : :off
  def generation = figures[8]
  def totals = figures
  def thread_totals = figures.first(4)
  def sites = rows

  def top_sites(count, by)
    column = Memintro::CallSites::FIGURES.fetch(by)
    figure = ->(row) { column ? row[column] : Memintro::SiteRow.public_send(by, row) }
    sorted = rows.sort_by { |row| [-figure.call(row), row[0]] }
    rest = sorted.drop(count)
    [sorted.first(count), rest.size, rest.sum { |row| Memintro::SiteRow.live_bytes(row) }, nil]
  end

  def live_by_site(age) = (@calls << [:live_by_site, age]) && aged
  def blocks(id, _stack = false) = (@calls << [:blocks, id]) && block_list
  def untracked_enter = @depth += 1
  def untracked_leave = @depth -= 1
  def dump_at_exit(path) = (@calls << [:dump_at_exit, path]) && nil
  def hook_path = "/lib/memintro/libmemintro_hook.so"
  def allocator = "/lib/x86_64-linux-gnu/libc.so.6"
  def patches = []
  def known_rubies = [RUBY_VERSION[/\A\d+\.\d+/]]
  def missing_functions = {}
  def unseen = nil
  def tracks_objects = false
  def track_objects(wanted) = (@calls << [:track_objects, wanted]) && wanted
  %i[rss peak_rss swap vsize pss uss].each { |name| define_method(name) { 50 * 2**20 } }
end
