# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/doubts"
require_relative "../../lib/memintro"
require "timeout"

# Whatever stands in a file: it is refused when it is loaded, or everything works with what was loaded.
RSpec.describe "A snapshot from a file" do
  around { |example| Dir.mktmpdir { |folder| @folder = folder and Timeout.timeout(300) { example.run } } }

  WRONG_VALUES = ["x", "9", "", "\xED\xA0\x80", [], [1], [nil], [[]], {}, { "a" => 1 }, { "a" => [{}] }, nil, true,
                  false, -1, 0, 1.5, -1e-300, 1e300, 10**40, Float::INFINITY, { "base64" => "/w==" }, { "base64" => 5 },
                  { "base64" => "?" }].freeze

  let(:wrong_texts) { WRONG_VALUES.map { |value| [value, text_of(value)] } }
  let(:path) { File.join(@folder, "snapshot.json") }

  # Every list is short, and nothing is missing, on any Ruby and machine.
  let(:real) do
    found = JSON.parse(Memintro.snapshot(:all).to_json)
    %w[types classes internals].each { |name| found[name] = found[name].first(2) }
    %w[paths locations].each { |name| found["iseqs"][name] = found["iseqs"][name].first(2) }
    found["occupancy"]["holders"] = [{ "name" => "String", "count" => 3, "pages" => 2 }]
    found["occupancy"]["pools"] = found["occupancy"]["pools"].first(1)
    found["cgroup"] = { "version" => 2, "path" => "/a", "limit_bytes" => 1 << 30, "high_bytes" => nil }
    found["gc_heaps"] = { "0" => { "slot_size" => 40, "heap_eden_pages" => 7 } }
    found["gc"] = found["gc"].slice("count", "time", "heap_live_slots", "old_objects")
    found["missing"] = { "swap_bytes" => "there is no /proc here" }
    found.merge(malloc)
  end

  let(:malloc) do
    rows = [[0, :ruby, "/app/a.rb", 3, 9, 2, 900, 100, 6, 4, 0, [1.0, 0.5, 90.0, 40.0, 70.0, 3.0, 2.0]],
            [1, :native, "libz.so(f+0x1)", 0, 5, 0, 500, 0, 0, 0, 0, [1.0, 0.0, 50.0, 0.0, 50.0, 0.0, 0.0]]]
    totals = Memintro::Totals.new(1400, 100, 14, 2, 0, 4096, 0, Doubts.of_totals([140.0, 40.0, 2.0, 0.5]))
    { "totals" => totals.to_h, "call_sites_left_out" => 3,
      "call_sites" => rows.map { |row| Memintro::CallSite.new(row).to_h } }
      .then { |plain| JSON.parse(JSON.generate(plain)) }
  end

  def places(value, at = [])
    inner = case value
            when Hash then value.flat_map { |key, item| places(item, [*at, key]) }
            when Array then value.each_with_index.flat_map { |item, index| places(item, [*at, index]) }
            else []
            end
    at.empty? ? inner : [at, *inner]
  end

  # Places that differ: a list's second row has the fields of the first.
  def different_places
    places(real).uniq { |at| [*at[..-2].map { |key| key.is_a?(Integer) ? 0 : key }, at.last] }
  end

  # The copy shares all but what is around the place.
  def with(value, (first, *rest), &change)
    copy = value.dup
    rest.empty? ? change.call(copy, first) : copy[first] = with(value[first], rest, &change)
    copy
  end

  def text_of(value) = Memintro::JsonText.dump(value).gsub("\\xED\\xA0\\x80", "\\ud800")

  def load_text(text)
    File.binwrite(path, text)
    Memintro::Snapshot.load(path)
  end

  # The whole with each of the values at that place, and its text. The rest is written once for all of them.
  def with_values(at, values)
    put = ->(value) { with(real, at) { |all, key| all[key] = value } }
    before, after = text_of(put["@here@"]).split('"@here@"', 2)
    values.map { |value, text| [put[value], before + text + after] }
  end

  def use(one, other)
    [one.inspect, one.to_json, (one - one.dup).to_s, (one - other).to_s, (other - one).to_html, (one - other).to_json,
     (other - one).inspect].each { |text| expect(text).to be_a(String) }
    expect(one.to_h).to be_a(Hash)
    trend = Memintro::Trend.new([one, other, one])
    [trend.to_s, trend.to_html, trend.to_json, trend.inspect].each { |text| expect(text).to be_a(String) }
  end

  # @param values [Array] each with its text
  # @return [Integer] how many were refused
  def refused(values)
    good = load_text(text_of(real))
    values.count do |wrong, text|
      loaded = begin
        load_text(text)
      rescue Memintro::SnapshotError => e
        expect(e.message).to start_with(path)
        expect(e.message.lines.size).to eq(1)
        expect(e.message).not_to include("undefined method")
      end
      next true unless loaded.is_a?(Memintro::Snapshot)

      use(loaded, good)
      false
    rescue StandardError => e
      raise "#{e.class}: #{e.message.lines.first}: #{e.backtrace.grep(/lib/).first} of #{difference(wrong)}"
    end
  end

  def difference(wrong)
    at = (places(real) | places(wrong)).reverse.find do |place|
      real.dig(*place) != wrong.dig(*place)
    rescue TypeError
      false
    end
    "#{at}: #{wrong.dig(*at).inspect}"
  end

  it "is as it was where nothing was changed" do
    exact = ->(text) { JSON.parse(text.gsub(/"\w+_standard_error":[^,}]+/) { |error| error[/.*:/] + "0" }) }
    text = text_of(real)
    expect(exact[load_text(text).to_json]).to eq(exact[JSON.generate(real)])
    use(load_text(text), load_text(text))
  end

  # Every fourth value at each place, others at the next place, and in the next run.
  def some_values(index)
    first = (index + RSpec.configuration.seed) % 4
    wrong_texts.values_at(*first.step(wrong_texts.size - 1, 4))
  end

  it "is refused, or can be used, with another value at any place" do
    wrong = different_places.each_with_index.flat_map { |at, index| with_values(at, some_values(index)) }
    expect(wrong.size).to be > 1_000
    expect(refused(wrong)).to be_between(wrong.size / 2, wrong.size * 0.95)
  end

  it "is refused, or can be used, with each of the values at any place", long: true do
    wrong = different_places.flat_map { |at| with_values(at, wrong_texts) }
    expect(refused(wrong)).to be_between(wrong.size / 2, wrong.size * 0.95)
  end

  it "is refused, or can be used, without any one of its values, and with one more" do
    less = ->(all, key) { all.is_a?(Array) ? all.delete_at(key) : all.delete(key) }
    wrong = places(real).map { |at| with(real, at, &less) }.map { |value| [value, text_of(value)] }
    expect(refused(wrong)).to be_between(20, wrong.size - 20)
    hashes = places(real).select { |at| real.dig(*at).is_a?(Hash) }
    refused(hashes.each_with_index.flat_map { |at, index| with_values([*at, "new"], some_values(index)) })
  end
end
