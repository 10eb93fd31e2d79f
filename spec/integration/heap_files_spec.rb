# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/chromium"
require "memintro"
require "objspace"
require "tmpdir"

# The command and the class that answer from heap dumps, on dumps of memintro and of Ruby.
RSpec.describe "A heap dump" do
  # Three dumps: 2,000 arrays come before the second one and stay, 2,000 more come before the third one.
  PROGRAM = <<~RUBY
    require "objspace"
    class Message; end
    class Archive
      def initialize = @recent = Array.new(1000) { Message.new }
    end
    KEPT = Archive.new
    COPIES = Array.new(300) { "copy" * 30 }
    folder = ARGV.first
    Memintro.heap_dump(folder + "/a.ndjson.zst", redact: true)
    NEW = Array.new(2000) { |i| [i.to_s * 30] }
    Memintro.heap_dump(folder + "/b.ndjson.gz", redact: true)
    File.open(folder + "/ruby.ndjson", "w") { |file| ObjectSpace.dump_all(output: file) }
    LATER = Array.new(2000) { |i| [i.to_s * 30] }
    Memintro.heap_dump(folder + "/c.ndjson", redact: true)
  RUBY

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
      .to eq("1,000 of 1,000 Message: Archive\#@recent (Array) ← KEPT ← root vm")
    expect(said("holders", "--class", "Message", file("ruby.ndjson"))).to start_with("1,000 of 1,000 Message: ")
  end

  it "names what came and stayed, from three dumps" do
    answer = JSON.parse(heap("diff", "--json", *%w[a.ndjson.zst b.ndjson.gz c.ndjson].map { |one| file(one) })
                          .must_succeed.stdout)
    rows = answer.fetch("kept").fetch("classes").to_h { |row| [row["class"], row["objects"]] }
    expect(rows).to include("Array" => be_between(2000, 2100), "String" => be_between(2000, 4000))
  end

  it "counts copies of strings, also without their values" do
    copies = JSON.parse(heap("duplicates", "--json", file("a.ndjson.zst")).must_succeed.stdout).fetch("rows")
    expect(copies.map { |row| row["strings"] }).to include(300)
  end

  it "gives the same figures to Ruby" do
    dump = Memintro::HeapDump.open(file("b.ndjson.gz"))
    messages = dump.histo(top: 1000)[:rows].find { |row| row[:class] == "Message" }
    expect(messages).to include(objects: 1000, bytes: 40_000)
    expect(dump.holders(class: "Message").sentence).to start_with("1,000 of 1,000 Message: Archive\#@recent")
    expect(dump.top(top: 1).sentence).to include("retains")
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

  it "can be looked at in a browser" do
    skip "no chromium here (apt-get install chromium)" unless Chromium.program
    heap("html", file("c.ndjson"), "-o", file("page.html")).must_succeed
    Dir.mktmpdir do |folder|
      browser = Chromium.new(folder)
      browser.visit(file("page.html"))
      expect(browser.complaints).to eq([])
    ensure
      browser&.close
    end
    expect(File.read(file("page.html"))).to include("Archive").and include("Content-Security-Policy")
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
    expect(targets.minmax).to match([be >= 0, be < all["nodes"].size])
    expect(targets.map { |target| target % meta["node_fields"].size }.uniq).to eq([0])
  end
end
