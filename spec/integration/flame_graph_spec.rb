# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/doubts"
require_relative "../support/chromium"
require_relative "../support/saved_report"
require "tmpdir"

# The page in a real browser, whose console must stay clean.
RSpec.describe "The page with a flame graph" do
  # To be seen: HOSTILE must not run, and must not turn the direction of writing.
  HOSTILE = ["/a/</script><script>window.hacked=1</script>.rb", "/a/<img src=x onerror=window.hacked=1>.rb",
             "/a/\u202Egpj.rb", "/a/bad\xFF.rb".b, "/a/#{'x' * 10_000}.rb",
             "/a/<!--<script>.rb", "/a/{{DATA}}.rb"].freeze

  before(:all) do
    skip "no chromium here (apt-get install chromium)" unless Chromium.program
    @folder = Dir.mktmpdir
    @browser = Chromium.new(@folder)
  end

  after(:all) do
    @browser&.close
    FileUtils.rm_rf(@folder) if @folder
  end

  after { expect(@browser.complaints).to eq([]) }

  # A row, and its frames.
  def site(id, path, line, total, freed: 0, marked: 0, objects: nil, variances: nil)
    [[id, :ruby, path, line, 1, 0, total, freed, 0, 0, marked, variances, nil, objects], nil]
  end

  def stacked(site, *frames) = [site.first, frames]

  # @param sites [Array]
  def visit(sites, estimated: false)
    totals = [10_000, 0, 9, 0, 0, 0, 0, estimated ? [1e4] * 4 : nil]
    process = { pid: 7, program: HOSTILE[0], memintro: "0" }
    report = SavedReport.read(rows: sites.map(&:first), totals: totals, process: process, **SavedReport.whole(sites))
    file = File.join(@folder, "page.html")
    File.write(file, SavedReport.written(report, format: :html))
    @browser.visit(file)
  end

  def sentence = @browser.value("document.getElementById('sentence').textContent")
  def details = @browser.value("document.getElementById('details').textContent")
  def chosen = @browser.value("nameOf(memintro.state.chosen)")
  def focus = @browser.value("nameOf(memintro.state.focus)")
  def table = @browser.value("[...document.querySelectorAll('#lines tr')].map((r) => r.innerText.split(/\\t/))")
  def pick(value) = @browser.value("document.querySelector('input[value=#{value}]').click()")

  let(:main) { ["/app/main.rb", 1, "main"] }
  let(:stacks) do
    [stacked(site(0, "/app/a.rb", 3, 6_000, freed: 1_000, marked: 2_000, objects: [9, 0, 360, 0, 40, 0, 0]),
             ["/app/a.rb", 3, "a"], main),
     stacked(site(1, "/app/b.rb", 4, 3_000, marked: 3_500), ["/app/b.rb", 4, "b"], ["/app/a.rb", 3, "a"], main),
     site(2, "/app/c.rb", 5, 1_000, marked: 1_000)]
  end

  it "draws what the report counts, by each of its toggles" do
    visit(stacks)
    expect(sentence).to eq("9.1 KiB live, malloc and objects; 89% through /app/a.rb:3")
    sums = %w[malloc objects both].to_h do |source|
      pick(source)
      [source, %w[live allocated growth].map { |view| pick(view) || @browser.value("memintro.graph.total[0]") }]
    end
    expect(sums).to eq("malloc" => [9_000, 10_000, 3_000], "objects" => [360, 360, 320],
                       "both" => [9_360, 10_360, 3_320])
    expect(@browser.value("document.getElementById('notes').textContent"))
      .to eq("1 stack shrank by 500 B, which is not drawn; net 2.8 KiB.")
    pick("live")
    pick("malloc")
    expect(table).to eq([["4.9 KiB", "55.6%", "7.8 KiB", "a (/app/a.rb:3)"],
                         ["2.9 KiB", "33.3%", "2.9 KiB", "b (/app/b.rb:4)"],
                         ["1000 B", "11.1%", "1000 B", "/app/c.rb:5"],
                         ["0 B", "0.0%", "7.8 KiB", "main (/app/main.rb:1)"]])
  end

  it "obeys keys" do
    visit(stacks)
    walked = %w[ArrowDown ArrowRight ArrowLeft ArrowDown ArrowDown ArrowUp].map { |key| @browser.key(key) && chosen }
    expect(walked).to eq(["main (/app/main.rb:1)", "/app/c.rb:5", "main (/app/main.rb:1)", "a (/app/a.rb:3)",
                          "b (/app/b.rb:4)", "a (/app/a.rb:3)"])
    @browser.key("Enter")
    expect(focus).to eq("a (/app/a.rb:3)")
    expect(details).to eq("a /app/a.rb:3\n8,360 B, 89.3%, 5,360 B of it here")
    @browser.key("?")
    expect(@browser.value("document.getElementById('keys').open")).to be(true)
    @browser.key("Escape")
    expect([@browser.value("document.getElementById('keys').open"), focus]).to eq([false, "a (/app/a.rb:3)"])
    @browser.key("Escape")
    expect(focus).to eq("all")
  end

  it "finds frames, and sums up what goes through them once" do
    visit(stacks)
    %w[/ A . R B].each { |key| @browser.key(key) }
    expect(details).to eq("1 frame found: 8.2 KiB, 89.3% through them")
    expect(@browser.value("[...memintro.state.hits].map((f) => memintro.graph.names[f])")).to eq(["a (/app/a.rb:3)"])
    @browser.key("Escape")
    expect(@browser.value("[memintro.state.hits, document.getElementById('search').value]")).to eq([nil, ""])
  end

  it "zooms by clicks, and back by its breadcrumbs" do
    visit(stacks)
    top, width = @browser.value("(({ top, left, width }) => [top, left + width])(canvas.getBoundingClientRect())")
    @browser.click(60, top + 50)
    expect(focus).to eq("a (/app/a.rb:3)")
    expect(@browser.value("document.getElementById('tip').textContent")).to include("8,360 B, 89.3%")
    expect(@browser.value("memintro.boxes()[0].wide")).to be_within(40).of(width)
    expect(@browser.value("document.getElementById('crumbs').innerText").split("\n"))
      .to eq(["all", "main (/app/main.rb:1)", "a (/app/a.rb:3)"])
    @browser.value("document.querySelector('#crumbs button').click()")
    expect(focus).to eq("all")
  end

  it "shows hostile names as they are, and runs nothing of them" do
    visit(HOSTILE.each_with_index.map { |path, id| site(id, path, 1, 100 - id) })
    expect(@browser.value("[window.hacked === undefined, document.images.length, document.scripts.length]"))
      .to eq([true, 0, 2])
    expect(table.size).to eq(HOSTILE.size)
    expect(table.map(&:last)[0..3]).to eq(["/a/</script><script>window.hacked=1</script>.rb:1",
                                           "/a/<img src=x onerror=window.hacked=1>.rb:1",
                                           "/a/\\xE2\\x80\\xAEgpj.rb:1", "/a/bad\\xFF.rb:1"])
    expect(@browser.value("document.documentElement.scrollWidth <= innerWidth")).to be(true)
  end

  it "has something to say of nothing, and of a stack that is 60 deep" do
    visit([])
    expect([sentence, table]).to eq(["Nothing live.", []])
    visit([stacked(site(0, "/app/f.rb", 60, 64), *Array.new(60) { |i| ["/app/f.rb", 60 - i, "f"] })])
    expect(sentence).to eq("64 B live; 100% at /app/f.rb:60")
    expect(@browser.value("[memintro.boxes().length, canvas.clientHeight]")).to eq([61, 1220])
  end

  it "marks estimates, with their error" do
    variances = Doubts.of_row([1.0, 1.0, 9e6, 0.0], growth: 9e6)
    visit([site(0, "/app/a.rb", 3, 10_240, variances: variances)], estimated: true)
    expect(sentence).to eq("~10.0 KiB ±2.9 KiB live; 100% at /app/a.rb:3")
    expect(@browser.value("document.getElementById('notes').textContent")).to start_with("Figures with ~ are estimated")
  end

  it "is written by the report" do
    page = StringIO.new.tap { |io| Memintro.report(io, format: :html) }.string
    file = File.join(@folder, "own.html").tap { |path| File.write(path, page) }
    @browser.visit(file)
    expect(sentence).to match(/live|Nothing/)
  end
end
