# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro"
require_relative "../../lib/memintro/support/statistics"
require "stringio"

RSpec.describe Memintro::Trend do
  def trend(*series, **options)
    described_class.new(series.transpose.each_with_index.map do |values, i|
      snapshot(i * 30, rss: values[0], classes: { "Session" => [values[1] || 1, (values[1] || 1) * 40] })
    end, **options)
  end

  def noise(random, level = 0.0)
    # Normal, by Box and Muller.
    level + (Math.sqrt(-2 * Math.log(1 - random.rand)) * Math.cos(2 * Math::PI * random.rand))
  end

  # Levels as a process has them: scattered, depending on the last, and as a saw that the collector makes.
  FLAT = {
    "white noise" => ->(random, noise) { Array.new(40) { 1_000 + (30 * noise.(random)) } },
    "twelve values of noise" => ->(random, noise) { Array.new(12) { 1_000 + (30 * noise.(random)) } },
    "six values of noise" => ->(random, noise) { Array.new(6) { 1_000 + (30 * noise.(random)) } },
    "values that depend on the last" => lambda { |random, noise|
      last = 0.0
      Array.new(60) { 1_000 + (last = (0.5 * last) + (30 * noise.(random))) }
    },
    "a saw" => lambda { |random, _|
      level = random.rand(500)
      Array.new(60) { 1_000 + (level = (level + 40 + random.rand(40)) % 500) }
    },
    "few different values" => ->(random, _) { Array.new(30) { 1_000 + random.rand(3) } }
  }.freeze

  FLAT.each do |name, make|
    it "raises at most 5 false alarms in 100 flat series: #{name}" do
      random = Random.new(20_261_122)
      alarms = Array.new(100) { make.call(random, method(:noise)) }.count do |values|
        Memintro::Statistics.confidence(values) >= 0.99 &&
          Memintro::Statistics.slope((0...values.size).to_a, values).positive?
      end
      expect(alarms).to be <= 5
    end
  end

  # A level that wanders: each value hands on a share of its distance from the mean.
  def wandering(random, size, share)
    last = noise(random) / Math.sqrt(1 - (share**2))
    Array.new(size) { last = (share * last) + noise(random) }
  end

  def alarms(of)
    Array.new(of) { trend(yield.map { |value| (1_000_000 + (1_000 * value)).round }) }.count { |one| one.growing.any? }
  end

  [0.5, 0.8, 0.9].product([20, 40, 60]).each do |share, size|
    it "raises at most 5 false alarms in 100 series of #{size} that hand on #{share} and grow nowhere" do
      random = Random.new(1_122)
      expect(alarms(100) { wandering(random, size, share) }).to be <= 5
    end
  end

  it "takes no saw for growth that is seen twice, and few that are as long as the window" do
    random = Random.new(2_026)
    saw = lambda do |periods|
      period = random.rand(periods)
      phase = random.rand(period)
      Array.new(30) { |i| ((i + phase) % period) + random.rand }
    end
    expect(alarms(100) { saw.call(6..15) }).to eq(0)
    # This looks like growth if the teeth are at its ends.
    expect(alarms(100) { saw.call(25..35) }).to be_between(1, 15)
  end

  # Total growth in standard deviations of the level, and how many of 50 are found at least.
  { "noise" => [0, 5, 45], "a level that hands on 0.5" => [0.5, 8, 40],
    "a level that hands on 0.9" => [0.9, 10, 35] }.each do |name, (share, growth, least)|
    it "finds real growth below #{name}" do
      random = Random.new(3)
      step = growth / Math.sqrt(1 - (share**2)) / 40
      expect(alarms(50) { wandering(random, 40, share).each_with_index.map { |value, i| value + (i * step) } })
        .to be >= least
    end
  end

  it "finds what grows in every step, evenly or not, in stairs and ever slower" do
    random = Random.new(4)
    sum = 0
    { even: Array.new(12) { |i| 3 * i }, random: Array.new(20) { sum += random.rand(100) },
      faster: Array.new(30) { |i| i * i }, slower: Array.new(30) { |i| Math.log(i + 1) },
      stairs: Array.new(30) { |i| i / 5 } }.each do |name, values|
      expect([name, alarms(1) { values }]).to eq([name, 1])
    end
    expect(alarms(1) { [1, 5] * 12 }).to eq(0)
    expect(alarms(1) { Array.new(20) { |i| -i } }).to eq(0)
  end

  # Student's own table, one-sided.
  it "knows Student's distribution" do
    { [6.965, 2] => 0.99, [3.365, 5] => 0.99, [2.764, 10] => 0.99, [2.457, 30] => 0.99, [1.812, 10] => 0.95,
      [-1.812, 10] => 0.05 }.each do |(deviation, freedom), probability|
      expect(Memintro::Statistics.send(:student, deviation, freedom)).to be_within(0.0015).of(probability)
    end
  end

  it "finds real growth below the noise, with its slope" do
    random = Random.new(7)
    found = Array.new(100) { trend(Array.new(40) { |i| (50_000 + (50 * i) + (500 * noise(random))).round }) }
    sure = found.select { |one| one.growing.any? { |line| line.name == "rss_bytes" } }
    expect(sure.size).to be >= 95
    slopes = sure.map { |one| one.growing.find { |line| line.name == "rss_bytes" }.slope_per_minute }
    expect(slopes.sum / slopes.size).to be_within(5).of(100) # 50 a step of 30 s
  end

  it "is not led astray by one value that stands out" do
    values = Array.new(20) { |i| 1_000 + (10 * i) }
    values[3] = 900_000
    expect(Memintro::Statistics.slope((0...20).to_a, values)).to be_within(0.5).of(10)
    expect(Memintro::Statistics.confidence(values)).to be > 0.99
  end

  it "knows the exact probabilities of few values" do
    # 1 order of 3! = 6, of 4! = 24, of 5! = 120 is ascending; of 4 values 3 + 1 orders have a score of 4 or more.
    confidence = Memintro::Statistics.method(:confidence)
    expect([[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 4, 3], [4, 3, 2, 1]].map { |list|
             confidence.(list).round(6)
           })
      .to eq([1 - (1 / 6.0), 1 - (1 / 24.0), 1 - (1 / 120.0), 1 - (4 / 24.0), 0.0].map { |value| value.round(6) })
    expect(confidence.([5] * 8)).to eq(0.5)
  end

  it "agrees with a slow twin that tries every order" do
    values = [3, 1, 4, 2, 6, 5]
    score = ->(list) { list.combination(2).sum { |a, b| b <=> a } }
    lower = values.permutation.count { |order| score.(order) < score.(values) }
    expect(Memintro::Statistics.confidence(values)).to be_within(1e-12).of(lower / 720.0)
  end

  it "tells what grew in every step from what grew on the whole" do
    found = trend([100, 200, 150, 300, 400, 500, 600, 700], [1, 2, 3, 4, 5, 6, 7, 8])
    expect(found.every_step.map { |line| [line.section, line.name] }).to eq([[:classes, "Session"]])
    expect(found.growing.map(&:name)).to eq(%w[rss_bytes Session])
    session = found.series.find { |one| one.name == "Session" }
    expect(session.to_h).to include(unit: :bytes, first: 40, last: 320, growth: 280, slope_per_minute: 80.0)
    expect(session.inspect)
      .to eq("#<Memintro::Trend::Series classes Session +80 B a minute, 100.0% sure, in every step>")
    expect(found.inspect).to include("8 snapshots in 3.5 minutes, 2 figures grow")
  end

  it "writes a table and JSON" do
    found = trend([100, 200, 300, 400, 500, 600], [1, 2, 3, 4, 5, 6])
    expect(found.to_s).to eq(<<~TEXT)
      memintro 0.1.0: 6 snapshots in 2.5 minutes, pid 4711, ruby 3.1.2
      2 figures grow, at least 99% sure (Mann-Kendall). Growth a minute (Theil-Sen):

      a minute   sure  each step  first   last  what
        +200 B  99.9%        yes  100 B  600 B  memory rss_bytes
         +80 B  99.9%        yes   40 B  240 B  class Session
    TEXT
    expect(JSON.parse(found.to_json)).to include("confidence" => 0.99, "memintro_trend" => 2,
                                                 "series" => have_attributes(size: 2))
  end

  it "says how many it does not show" do
    io = StringIO.new
    found = trend([100, 200, 300, 400, 500], [1, 2, 3, 4, 5])
    found.write(io, top: 1)
    expect(io.string).to end_with("memory rss_bytes\n\n1 more\n")
    expect(found.to_html).not_to include("more</td>")
    found.write(page = StringIO.new, format: :html, top: 1)
    expect(page.string).to include("<td class=\"more\" colspan=\"7\">1 more</td>")
  end

  describe "as a page" do
    let(:found) { trend([100, 200, 150, 300, 400, 500], [1, 2, 3, 4, 5, 6]) }

    def row_of(name) = found.to_html.lines.find { |line| line.start_with?("<tr>") && line.include?(name) }

    def texts(row) = row.gsub(%r{<svg.*</svg>}, "").scan(%r{<td[^>]*>([^<]*)</td>}).flatten

    it "says what the text says" do
      page = found.to_html
      expect(page).to include("<h1 id=\"sentence\">What grew in 2.5 minutes</h1>",
                              "6 snapshots in 2.5 minutes, pid 4711",
                              "<li>2 figures grow, at least 99% sure (Mann-Kendall).</li>")
      expect(texts(row_of("rss_bytes"))).to eq(["", "+160 B", "99.2%", "", "100 B", "500 B", "memory rss_bytes"])
      expect(texts(row_of("Session"))).to eq(["", "+80 B", "99.9%", "yes", "40 B", "240 B", "class Session"])
      table = found.to_s.lines.drop(4).map(&:split)
      expect(table.map { |cells| cells.first(2).join(" ") }).to eq(["+160 B", "+80 B"])
    end

    it "draws each figure's course over time, and its slope" do
      row = row_of("Session")
      # Six snapshots in equal steps, from the left to the right and from below to above.
      expect(row[/polyline points="([^"]*)"/, 1]).to eq("2.0,22.0 26.8,18.0 51.6,14.0 76.4,10.0 101.2,6.0 126.0,2.0")
      expect(row).to include('<line x1="2.0" y1="22.0" x2="126.0" y2="2.0">', '<circle cx="126.0" cy="2.0" r="2">',
                             "<title>from 40 B to 240 B</title>")
      expect(row_of("rss_bytes")[/polyline points="([^"]*)"/, 1].split.map { |point| point.split(",").last.to_f })
        .to eq([22.0, 17.0, 19.5, 12.0, 7.0, 2.0])
      uneven = described_class.new([0, 90, 100].map { |s| snapshot(s, rss: 100 + s) }).to_html
      expect(uneven[/polyline points="([^"]*)"/, 1]).to eq("2.0,22.0 113.6,4.0 126.0,2.0")
    end

    it "draws snapshots of one instant side by side, and outliers as they are" do
      instant = described_class.new(Array.new(3) { |i| snapshot(0, rss: 100 + i) }).to_html
      expect(instant[/polyline points="([^"]*)"/, 1]).to eq("2.0,22.0 64.0,12.0 126.0,2.0")
      saw = described_class.new([5, 9, 1, 6].each_with_index.map { |rss, i| snapshot(i * 60, rss: rss) }).to_html
      expect(saw[/polyline points="([^"]*)"/, 1]).to eq("2.0,12.0 43.3,2.0 84.7,22.0 126.0,9.5")
      expect(saw).to include("<title>from 1 B to 9 B</title>")
    end

    it "fetches nothing, escapes everything and closes what it opens" do
      evil = "<script>alert(\"1\")</script>"
      snapshots = Array.new(5) do |i|
        snapshot(i * 30, rss: 100 + i, classes: { evil => [i, 40 * i] }, iseqs: { "#{evil}\xFF" => [i, 50 * i] },
                         process: { program: evil, ruby: evil }, sites: { "#{evil}:1" => [100 * i, i] })
      end
      page = described_class.new(snapshots).to_html
      expect(page).not_to match(/<script|<img/)
      expect(page.scan("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;").size).to be >= 8
      expect(page).to be_valid_encoding.and include("default-src 'none'; style-src 'sha256-")
      expect(page).not_to match(%r{https?://|//\w|<link|url\(|@import|src=|href=})
      opened = page.scan(/<([a-z]\w*)/).flatten.tally.except("meta", "br")
      expect(page.scan(%r{</([a-z]\w*)}).flatten.tally).to eq(opened)
      expect(opened).to include("svg" => 4, "tr" => 5)
    end

    it "says when nothing is sure, or has grown" do
      few = trend([1, 2, 3, 4]).to_html
      expect(few).to include("<li>Nothing grows with 99% certainty.</li>", "<h2>greater now than at first</h2>",
                             "<li class=\"note\">4 snapshots are too few for 99% certainty; take at least 5.</li>")
      none = trend([4, 3, 2]).to_html
      expect(none).to include("<li>Nothing has grown.</li>")
      expect(none).not_to match(/<table|<svg/)
    end
  end

  it "says when there is too little to be sure" do
    found = trend([1, 2, 3, 4])
    expect(found.growing).to be_empty
    expect(found.notes).to eq(["4 snapshots are too few for 99% certainty; take at least 5."])
    expect(found.to_s).to include("Nothing grows with 99% certainty", "95.8%")
    expect(trend([1, 2, 3, 4], confidence: 0.95).growing.map(&:name)).to eq(["rss_bytes"])
    expect(trend([4, 3, 2]).to_s).to include("Nothing has grown.")
  end

  it "sorts by time, thins out, and refuses what is no row of snapshots" do
    shuffled = described_class.new([2, 0, 1].map { |i| snapshot(i * 60, rss: 100 + i) })
    expect(shuffled.every_step.map(&:name)).to eq(["rss_bytes"])
    expect(described_class.new(Array.new(250) { |i| snapshot(i, rss: i) }).snapshots.size).to eq(100)
    expect { described_class.new([snapshot, snapshot]) }
      .to raise_error(ArgumentError, /a trend needs at least 3 snapshots, not 2; for 2, subtract/)
    expect { described_class.new([1, 2, 3]) }.to raise_error(TypeError, /an Array of Memintro::Snapshot/)
    expect { trend([1, 2, 3], confidence: 95) }.to raise_error(ArgumentError, /confidence is 95/)
  end

  it "keeps quiet about call sites that a cut list may hide" do
    list = [{ "a:1" => [5, 1] }, { "a:1" => [6, 1], "b:2" => [90, 1] }, { "a:1" => [7, 1], "b:2" => [99, 1] }]
    cut = ->(left) { described_class.new(list.map.with_index { |s, i| snapshot(i, sites: s, left_out: left) }).series }
    expect(cut.(0).map(&:name)).to contain_exactly("a:1", "b:2")
    expect(cut.(5).map(&:name)).to eq(["a:1"])
  end
end
