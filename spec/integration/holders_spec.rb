# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/stories"

# Who holds an object: names of references in the frozen copy, and the answers that are made of them.
RSpec.describe "who holds an object", :vm do
  describe "names of references" do
    before(:all) { @found = Subprocess.run_ruby("heap_edges.rb").must_succeed.json }

    it "are there for at least 19 of 20 references of a whole heap" do
      expect(@found[:outcome]).to eq("answered")
      expect(@found[:total]).to be > 20_000
      expect(@found[:unnamed]).to be < @found[:total] / 20
    end

    it "leave out none of the references that Ruby reports, and invent none" do
      expect(@found[:different]).to eq(0)
      expect(@found[:locals]).to eq([])
    end

    it "tell variables, members, elements, keys, defaults and parts of closures" do
      expect(@found[:named]).to include(
        plain: ["@inner"], pair: [".left", ".right"], closure: contain_exactly("self", "code", "locals"),
        generic: [RUBY_VERSION < "4.0" ? "@mark" : "variables"], identity: ["key", '["key"]'],
        large: (1..100).map { |key| "[#{key}]" },
        default: ["default"], method: include("receiver", "owner"), binding: include("self", "locals"),
        match: contain_exactly("regexp", "string"), array: ["[0]", "[2]"]
      )
      shared = RUBY_VERSION < "4.0" ? "@@shared" : "variables"
      expect(@found[:plain]).to include("superclass", shared, "::CONSTANT", "method initialize")
      expect(@found[:env]).to include("local captured")
      expect(@found[:at]).to end_with("heap_edges.rb:21")
    end

    it "tell local variables of other threads and fibers, and global variables" do
      expect(@found[:named][:fiber].grep(/local in_fiber at .*heap_edges\.rb:33\z/).size).to eq(1)
      expect(@found[:threads].grep(/local in_thread at .*heap_edges\.rb:40\z/).size).to eq(1)
      expect(@found[:globals]).to include("$kept", "$stdin", /\AC address registered \(/)
    end
  end

  it "finds objects by class, size and condition, for objects with any methods" do
    found = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      class Liar < BasicObject
        %i[class hash == inspect equal? is_a? respond_to?].each { |name| define_method(name) { |*| ::Kernel.raise "no" } }
      end
      class Below < String; end
      kept = [Liar.new, Below.new.concat("x" * 100_000), Below.new("y")]
      long = Memintro.find(class: Below, min_bytes: 100_000, where: ->(text) { text.start_with?("xxx") })
      wrong = begin
        Memintro.find(class: 3)
      rescue TypeError => e
        e.message
      end
      puts JSON.generate(liars: Memintro.find(class: Liar).size, below: Memintro.find(class: Below).size,
                         long: long.map(&:size), same: long.first.equal?(kept[1]), frozen: long.frozen?, wrong: wrong,
                         one: Memintro.find(limit: 1).size, strings: Memintro.heap_counts[:T_STRING])
    RUBY
    expect(found).to include(liars: 1, below: 2, long: [100_000], same: true, frozen: true, one: 1,
                             wrong: "class is 3; it must be a Class", strings: be > 1_000)
  end

  it "shows what roots and stacks hold, and gives an object back only where it still is" do
    found = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      class Held; end
      $global = Held.new
      def ask(argument) = Memintro.stack_dump
      rows = ask(Held.new).select { |row| row.class_name == "Held" }
      root = Memintro.roots.find { |row| row.name == "$global" }
      same = root.object.equal?($global)
      elsewhere = Memintro::HeldValue.new("x", nil, "Other", root.address.to_i(16)).object
      nowhere = Memintro::HeldValue.new("x", nil, "Held", 8).object
      puts JSON.generate(names: rows.map(&:name), same: same, elsewhere: elsewhere, nowhere: nowhere)
    RUBY
    expect(found).to include(names: include(/\Alocal argument at -e:4\z/), same: true, elsewhere: nil, nowhere: nil)
  end

  # A thread that waits for Ruby's lock gets it after 0.1 s of each thread that computes. So this counts the turns of
  # the computing threads that follow a step of the asking thread. The first call also requires its files, and Ruby 3.3
  # and later give up the lock three times for each.
  it "give up Ruby's lock for the wait alone, beside threads that compute", alone: true do
    turns = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      class Message; end
      KEPT = Array.new(1_000) { Message.new }
      $asker = false
      $turns = 0
      2.times { Thread.new { loop { ($asker = false; $turns += 1) if $asker } } }
      asker = Thread.current
      steps = TracePoint.new(:line, :call, :c_call) { $asker = true if Thread.current.equal?(asker) }
      puts JSON.generate(Array.new(4) { steps.enable { $turns = 0; Memintro.holders(Message); $turns } })
    RUBY
    expect(turns.first).to be_between(1, 60)
    expect(turns.drop(1)).to all(be_between(1, 3))
  end

  it "end soon when the thread that waits is interrupted" do
    said = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      require "timeout"
      kept = Array.new(1_500_000) { |i| [i] }
      Memintro.holders("Class")
      times = [0.05, 0.1, 0.2].map do |seconds|
        begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        Timeout.timeout(seconds) { Memintro.holders("Array") }
        -1
      rescue Timeout::Error
        Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun - seconds
      end
      puts JSON.generate(times)
    RUBY
    # To end a copy takes as long as to make it, and more where others use the processors.
    expect(said).to all(be_between(0, 1))
  end

  # Each is referred to in one way, besides by the Array of all. The last of the answers of one are roots.
  REFERRED = Subprocess.read_program("holders/referred.rb")

  it "tells who refers to an object, in each way that there is" do
    found = run_ruby(code: REFERRED).must_succeed.json
    expect(found[:told]).to match(
      [include("Owner\#@thing"), include("Array[1]"), include("Hash[:key]"), include("Pair.left"),
       include("Hash (key)"), include("$g"), include(/\Alocal captured of block at -e:\d+\z/),
       include("String\#@mark"), include(/\A(?:Thread|Fiber) .*\(thread-local :mine\)\z/), include("Hash (default)"),
       include("Owner.@@shared"), include("Owner::CONSTANT"), include(/\Alocal in_fiber at -e:\d+ of Fiber/)]
    )
    expect(found[:told].first(10)).to all(include(match(/\AArray\[\d\]\z/)))
    expect(found).to include(roots: [[nil, "$g"]], same: [0, 0, 0, 0])
  end

  it "tells both ends of a way that is as long as a list" do
    found = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      Node = Struct.new(:previous)
      $last = 500.times.inject(nil) { |previous, _| Node.new(previous) }
      def first = $last.then { |node| (node = node.previous) while node.previous; node }
      way = Memintro.path_to_root(first, paths: 9).find { |one| one.holders.any?(&:repeated?) }
      puts JSON.generate(count: way.holders.size, gaps: way.holders.count(&:repeated?), left_out: way.left_out, text: way.to_s, to_h: way.holders[79].to_h)
    RUBY
    expect(found).to include(count: 100, gaps: 1, left_out: 399)
    expect(found[:text]).to eq("Node.previous, 499 times ← $last")
    expect(found[:to_h]).to include(repeated: true, left_out: 399, class_name: "Node")
  end

  it "names the guilty holder on the first line, in seven programs" do
    found = run_ruby("heap_stories.rb").must_succeed.json
    expected = HeldStories::ALL.slice(:a, :b, :c, :d, :f).transform_values { |_, line| match(line) }
    expect(found[:sentences]).to match(expected.merge(g: match(/\A(?:999|1,000) of 1,00[01] objects \(.*\): Registry/)))
    expect(found).to include(referrers: include("Array[7]"), same: true, frozen: true, retained: be > 500 * 40)
    expect(found[:path].join("\n")).to include('Archive#@recent[7] (Array)')
  end

  describe "the largest objects" do
    before(:all) do
      @found = Subprocess.run_ruby(code: read_program("holders/largest.rb")).must_succeed.json
    end

    it "are ranked by what they keep alive, each with its own bytes and its way to a root" do
      rows = @found[:retained]
      expect(rows.map { |row| row[:retained_bytes] }).to eq(rows.map { |row| row[:retained_bytes] }.sort.reverse)
      store = rows.find { |row| row[:class_name] == "Store" }
      parts = 20 * (100_000 + 41)
      expect(store).to include(type: "OBJECT", bytes: 40, retained_bytes: be_between(parts + 200, parts + 400),
                               held_by: start_with("Keep::STORE ← Keep"))
      # What it retains is in the list, too.
      array = rows.find { |row| row[:class_name] == "Array" && row[:held_by].start_with?("Store") }
      expect(store[:retained_bytes] - array[:retained_bytes]).to eq(40)
      expect(@found[:three].map { |row| row[:address] }).to eq(rows.first(3).map { |row| row[:address] })
    end

    it "are ranked by their own bytes, two that are equal by their addresses" do
      long, first, second = @found[:own]
      expect(@found[:own].size).to eq(3)
      expect(long).to include(class_name: "String", bytes: be_between(1_500_000, 1_500_100), retained_bytes: nil)
      expect([first, second]).to all(include(class_name: "String", bytes: be_between(700_000, 700_100)))
      expect(first[:bytes]).to eq(second[:bytes])
      expect(first[:address].hex).to be < second[:address].hex
      expect(@found[:same]).to eq([true, true])
      expect(@found[:texts].first).to match(/\A1\.4 MiB: String, held by .*Keep::LONG/)
    end

    it "are not asked for wrongly" do
      expect(@found[:refused]).to match([/count is 0; it must be an Integer from 1 to 100000/, /count is "3"/,
                                         /by is :age; it must be .*retained_bytes.*bytes/, /seconds is 0/])
    end
  end
end
