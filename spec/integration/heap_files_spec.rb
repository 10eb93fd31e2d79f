# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/chromium"
require "memintro"
require "objspace"
require "tmpdir"

# The command and the class that answer from heap dumps, on dumps of memintro and of Ruby.
RSpec.describe "A heap dump" do
  # Three dumps: 2,000 arrays come before the second one and stay, 2,000 more come before the third one.
  PROGRAM = Subprocess.read_program("heap_files/program.rb")

  before(:all) do
    @folder = Dir.mktmpdir
    path = File.join(@folder, "program.rb")
    File.write(path, PROGRAM)
    run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", path, @folder).must_succeed
  end

  after(:all) { FileUtils.rm_rf(@folder) }

  def file(name) = File.join(@folder, name)
  def heap(*arguments) = run_memintro("heap", *arguments)
  def said(*arguments) = heap(*arguments).must_succeed.stdout.lines.first.chomp

  it "says who holds the objects of a class, in a dump of memintro and in one of Ruby" do
    expect(said("holders", "--class", "Message", file("a.ndjson.zst")))
      .to match(/\A1,000 of 1,000 Message \(39\.1 KiB\): Archive\#@recent \(Array\) ← KEPT ← (?:.* ← )?root vm\z/)
    expect(said("holders", "--class", "Message", file("ruby.ndjson")))
      .to start_with("1,000 of 1,000 Message (39.1 KiB): ")
  end

  it "names what came and stayed, from three dumps" do
    answer = JSON.parse(heap("diff", "--json", *%w[a.ndjson.zst b.ndjson.gz c.ndjson].map { |one| file(one) })
                          .must_succeed.stdout)
    rows = answer.fetch("kept").fetch("classes").to_h { |row| [row["class"], row["objects"]] }
    expect(rows).to include("Array" => be_between(2000, 2100), "String" => be_between(2000, 2200))
  end

  it "is asked by a command before or behind the dump" do
    file = file("a.ndjson.zst")
    expect(heap(file, "histo", "-n", "3").must_succeed.stdout).to eq(heap("histo", "-n", "3", file).must_succeed.stdout)
    expect(heap(file, file("c.ndjson"), "diff").must_succeed.stdout).to match(/\A[\d.]+ \w+ more than before/)
    expect(heap(file, "file").stderr).to include("there is no memintro heap #{file.inspect}; there are histo, top")
  end

  it "counts copies of strings, also without their values" do
    copies = JSON.parse(heap("duplicates", "--json", file("a.ndjson.zst")).must_succeed.stdout).fetch("rows")
    expect(copies.map { |row| row["strings"] }).to include(300)
  end

  it "gives the same figures to Ruby" do
    dump = Memintro::HeapDump.open(file("b.ndjson.gz"))
    messages = dump.histo(top: 1000)[:rows].find { |row| row[:class] == "Message" }
    expect(messages).to include(objects: 1000, bytes: 40_000)
    expect(dump.holders(class: "Message").sentence).to start_with("1,000 of 1,000 Message (39.1 KiB): Archive\#@recent")
    expect(dump.top(top: 1).sentence).to include("retains")
  end

  # Archive retains itself, its Array with 1,000 places, and 1,000 Messages.
  RETAINED = 1000 * 40 + 8000 + 80

  it "answers each question to Ruby, with figures that are known" do
    dump = Memintro::HeapDump.open(file("c.ndjson"))
    retained = dump.retained(class: "Archive")
    expect(retained.to_h).to include(matched: 1, retained_objects: 1002, retained_bytes: be_within(1000).of(RETAINED))
    archive = dump.dominators(top: 1000)[:classes].find { |row| row[:class] == "Archive" }
    expect(archive).to include(objects: 1, retained_bytes: retained[:retained_bytes])
    sizes = dump.top(by: :bytes, top: 5)[:rows].map { |row| row[:bytes] }
    expect(sizes).to eq(sizes.sort.last(5).reverse)
    copies = dump.duplicates[:rows].find { |row| row[:strings] == 300 }
    expect(copies).to include(bytesize: 120, spare_bytes: be_within(400).of(299 * 160))
    strings = dump.strings
    expect(strings[:lengths].sum { |row| row[:strings] }).to eq(strings[:strings])
    expect(dump.histo(by: :type)[:rows].find { |row| row[:type] == "STRING" }[:objects]).to eq(strings[:strings])
    notes = [dump.histo(by: :line), dump.generations].map { |answer| answer.notes.join }
    expect(notes).to all(include("objects: true"))
    way = dump.path_to_root(class: "Archive").first
    expect(way.to_s).to start_with("KEPT")
    expect(dump.referrers(class: "Archive").map(&:to_s)).to include("KEPT")
    message = dump.path_to_root(class: "Message", paths: 3)
    expect(message.map { |one| one.holders.map(&:address) }.flatten.tally.values).to all(eq(1))
    array = message.first.holders.first.address
    expect(dump.referrers(address: array).first.to_s).to eq("Archive\#@recent")
    changed = Memintro::HeapDump.open(file("a.ndjson.zst")).diff(file("c.ndjson"))
    # Some come to the places of others that were freed meanwhile, and count as the same.
    expect(changed[:new][:classes].find { |row| row[:class] == "Array" }[:objects]).to be_between(3500, 4200)
    more = changed[:after][:objects] - changed[:before][:objects]
    expect(changed[:new][:objects] - changed[:gone][:objects]).to eq(more)
    written = %w[x.html x.heapsnapshot].map { |name| dump.public_send(name.split(".").last, file(name)) }
    expect(written.map(&:truncated?)).to eq([false, false])
    expect(%w[x.html x.heapsnapshot].map { |name| File.size(file(name)) }).to all(be > 100_000)
    expect { dump.holders(class: "Nothing") }.to raise_error(Memintro::HeapDumpError, /no object that fits: Nothing/)
    expect { dump.path_to_root(generation: 10**20) }.to raise_error(ArgumentError, /numbers up to 4294967295/)
  end

  it "answers each command, and ends reading at the memory that is allowed" do
    choosing = { "holders" => ["--class", "Archive"], "path" => ["--class", "Archive", "--paths", "2"],
                 "referrers" => ["--class", "Archive"], "retained" => ["--class", "Archive"] }
    commands = %w[histo top dominators holders path referrers retained duplicates strings generations]
    told = commands.to_h { |name| [name, said(name, *choosing[name], file("c.ndjson"))] }
    expect(told).to match(
      "histo" => /\A[\d,]+ objects take .*, [\d.]+% of it /, "top" => /\(Array\) retains .* of the heap: 2,000 /,
      "dominators" => /retains most: .* of the heap\z/, "holders" => /\A1 of 1 Archive \(40 B\): KEPT ← /,
      "path" => /\AArchive at 0x\h+ is held by KEPT ← /, "referrers" => /\A1 object and \d roots? refer to Archive at/,
      "retained" => /\AArchive at 0x\h+ retains 4\d\.\d KiB in 1,002 objects/, "strings" => /\A[\d,]+ strings take /,
      "duplicates" => /\A[\d,]+ of [\d,]+ strings are copies of others, /,
      "generations" => /\ANone of the [\d,]+ objects tells its generation/
    )
    few = heap("top", "--max-memory-bytes", "200000", file("c.ndjson"))
    expect([few.status.exitstatus, few.stderr]).to match([1, /byte \d+: .*--max-memory-bytes allows more/])
    expect(few.stdout).to match(/ retains /).or eq("")
  end

  it "is read as far as it goes when it is cut short, and refused in words when it is none" do
    whole = File.binread(file("c.ndjson"))
    File.binwrite(file("cut.ndjson"), whole[0, whole.size / 2])
    cut = heap("histo", file("cut.ndjson"))
    expect(cut.stdout).to match(/\A[\d,]+ objects take/)
    expect(cut.stdout + cut.stderr).to match(/byte [\d,]+/)
    File.write(file("none"), "no dump\n" * 10)
    none = heap("histo", file("none"))
    expect(none.status.exitstatus).not_to eq(0)
    expect(none.stderr).to include("none")
    expect(heap("histo", file("missing")).stderr).to include("missing")
  end

  it "can be looked at in a browser: gone down in, searched by class and by path" do
    skip "no chromium here (apt-get install chromium)" unless Chromium.program
    heap("html", file("c.ndjson"), "-o", file("page.html")).must_succeed
    Dir.mktmpdir do |folder|
      browser = Chromium.new(folder)
      browser.visit(file("page.html"))
      drill_down(browser)
      search(browser)
      expect(browser.complaints).to eq([])
    ensure
      browser&.close
    end
    expect(File.read(file("page.html"))).to include("Archive").and include("Content-Security-Policy")
  end

  # Each click on a box of the treemap, and on a row of the list, goes to what that object retains.
  def drill_down(browser)
    state = "window.memintro.state"
    expect(browser.value("window.memintro.boxes().length")).to be > 10
    box = browser.value("(() => { const frame = document.getElementById('map').getBoundingClientRect();
      const box = window.memintro.boxes().find((box) => box.node > 0 && box.depth === 0);
      return [box.node, frame.left + box.x + box.w / 2, frame.top + box.y + 5] })()")
    browser.click(*box.drop(1))
    expect(browser.value("#{state}.focus")).to eq(box.first)
    3.times { browser.value("document.querySelector('#inside button')?.click()") }
    deep = browser.value("#{state}.focus")
    expect(browser.value("window.memintro.nodes[#{deep}][0]")).to be_positive
    expect(browser.value("document.querySelectorAll('#crumbs button').length")).to be >= 3
    browser.value("document.getElementById('map').focus()")
    browser.key("ArrowUp")
    expect(browser.value("#{state}.focus")).to eq(browser.value("window.memintro.nodes[#{deep}][0]"))
    browser.key("Escape")
    expect(browser.value("#{state}.focus")).to eq(0)
  end

  def search(browser)
    hits = "[...window.memintro.state.hits].map((node) => window.memintro.nameOf(node))"
    browser.value("document.getElementById('search').focus()")
    "archive".each_char { |letter| browser.key(letter) }
    expect(browser.value(hits)).to include("Archive")
    expect(browser.value("document.querySelector('#classes tr').textContent")).to include("Archive")
    # By the way to a root: what the constant holds.
    browser.value("document.getElementById('reset').click()")
    browser.value("document.getElementById('search').focus()")
    "kept".each_char { |letter| browser.key(letter) }
    expect(browser.value("#{hits}.includes('Archive')")).to be(true)
    browser.value("document.getElementById('reset').click()")
    row = "[...document.querySelectorAll('#classes button')].find((one) => one.textContent === 'Message')"
    browser.value("#{row}.click()")
    expect(browser.value("document.getElementById('heading').textContent")).to match(/\A[\d,]+ of the [\d,]+ objects/)
    expect(browser.value("document.getElementById('search').value")).to eq("Message")
  end

  it "becomes a heapsnapshot whose nodes and edges are as many as it says" do
    heap("heapsnapshot", file("c.ndjson"), "-o", file("c.heapsnapshot")).must_succeed
    all = JSON.parse(File.read(file("c.heapsnapshot")))
    meta = all["snapshot"]["meta"]
    nodes = all["nodes"].each_slice(meta["node_fields"].size).to_a
    edges = all["edges"].each_slice(meta["edge_fields"].size).to_a
    expect([nodes.size, edges.size]).to eq(all["snapshot"].values_at("node_count", "edge_count"))
    expect(nodes.sum { |node| node[meta["node_fields"].index("edge_count")] }).to eq(edges.size)
    targets = edges.map { |edge| edge[meta["edge_fields"].index("to_node")] }
    expect(targets.max).to be < all["nodes"].size
    expect(targets.map { |target| target % meta["node_fields"].size }.uniq).to eq([0])
  end
end
