# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# What the first sentences about holders say: where few objects have most bytes, several ways hold the same, most are
# garbage, and Ruby's own objects are on the way.
RSpec.describe "ways to what holds objects", :vm do
  describe "in a program" do
    before(:all) { @found = Subprocess.run_ruby("holders_ways.rb").must_succeed.json }

    it "are ranked by bytes, or by objects" do
      bytes, objects = @found[:strings].values_at(:bytes, :objects)
      expect(bytes).to include(by: "bytes", sentence: /\A1 of [\d,]+ String \(4\.8 of \d\.\d MiB\): Document\#@text ← /)
      expect(bytes[:ways][1]).to match(/\AJob\#@payload ← .*JOBS/)
      small = /\A5,000 of [\d,]+ String \(195\.3 KiB of \d\.\d MiB\): SMALL \(Array\)/
      expect(objects).to include(by: "objects", sentence: small)
      expect(@found[:refused]).to eq("by is :age; it must be one of :bytes, :objects")
    end

    it "are listed with those that would hold the objects without the first one" do
      expect(@found[:messages]).to match(
        /\A1,800 of 2,400 Message \(70\.3 of 93\.8 KiB\): REGISTRY .*; and would still be held by Archive\#@recent /
      )
      expect(@found[:others]).to match([[1_800, /Archive\#@recent \(Array\) ← ARCHIVE/]])
      expect(@found[:text]).to match(/^  objects  without the first way still held by\n    1,800  Archive\#@recent/)
      expect(@found[:jobs])
        .to match(/\A30 of 30 Job .*: JOBS \(Array\) ← .*; and would still be held by .*RETRIES\[:jobs\]/)
    end

    it "come second where most of the objects are garbage" do
      sentence, count, bytes = @found[:garbage]
      expect(sentence).to match(/\ANo root leads to 1[89] of 20 Garbage \(7[26]0 of 800 B\): garbage, .*\. [12] \(/)
      expect(bytes).to eq(count * 40)
    end

    it "tell singleton classes from classes, and name objects by their class" do
      expect(@found[:documents]).to match(/\A5 of 6 Document \(.*\): singleton class of a Document ← KEPT \(Array\)/)
      expect(@found[:largest].map(&:first)).to eq(%w[Document String])
      expect(@found[:largest].dig(0, 1)).to match(/: Document, held by singleton class of a Document ← NAMED ← /)
    end

    it "begin with what is not always there, unless all is asked for" do
      expect(@found[:all]).to match([/: class Object, held by /])
    end
  end

  it "do not begin at a word on a machine stack where another root leads to the object as well" do
    # Only a local variable of C refers to the list that `map` fills, until the block has found that and keeps it.
    rows = run_ruby(code: <<~RUBY, requires: %w[memintro objspace]).must_succeed.stdout.lines
      class Document
        attr_accessor :list
      end
      KEPT = [Document.new]
      source = Array.new(600_000, 1)
      rows = nil
      source.map do
        next if rows

        KEPT[0].list = ObjectSpace.each_object(Array).find { |list| list.empty? && ObjectSpace.memsize_of(list) > 4e6 }
        rows = Memintro.largest(3)
      end
      puts rows.map { |row| row.to_s }
    RUBY
    expect(rows[0]).to match(/\A4\.6 MiB retained \(40 B of its own\): Array, held by KEPT ← /)
    expect(rows[1]).to match(/\A4\.6 MiB retained \(40 B of its own\): Document, held by KEPT\[0\] \(Array\) ← /)
    expect(rows[2]).to match(/\A4\.6 MiB retained \(4\.6 MiB of its own\): Array, held by Document\#@list ← KEPT/)
  end

  it "say that a part of a text keeps all of it" do
    text = run_ruby(code: <<~RUBY).must_succeed.stdout
      class Ids
        def initialize = @seen = []
        def read(line) = @seen << yield(line[-60..])
      end
      IDS, COPIES = Array.new(2) { Ids.new }
      1_000.times { |i| IDS.read("parameters " * 400 + i.to_s, &:itself) }
      GC.start
      puts Memintro.holders(String)
      IDS.instance_variable_get(:@seen).clear
      1_000.times { |i| COPIES.read("parameters " * 400 + i.to_s) { |part| "" + part } }
      puts "--", Memintro.holders(String)
    RUBY
    parts, copies = text.split("--\n")
    expect(parts).to match(/\A(?:999|1,000) of [\d,]+ String \(4\.\d of .*?\): String \(shared string\) ← Ids\#@seen/)
    expect(parts).to include("Note: a shared string is the whole text of which another String is a part, and lives " \
                             "as long as that part: keep a copy of the part, as \"\" + part makes it.")
    expect(copies).not_to include("(shared string) ← Ids", "Note: a shared string")
  end

  # Blocks of at_exit, which many client libraries have for each connection.
  it "end at the method that was given the blocks, where Ruby's name of the root does not tell" do
    told = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
      class Connection
        def self.open = new.tap { |connection| at_exit { connection } }
      end
      50.times { Connection.open }
      held = Memintro.holders("Connection")
      puts JSON.generate([held.sentence, held.groups.first.to_s])
    RUBY
    expect(told).to all(match(/local connection.* ← (?:block|Proc) at -e:2 \(locals\) ← root end_proc \(at_exit\)\z/))
  end

  it "count garbage that awaits its finalizer with its slot" do
    found = run_ruby(code: <<~RUBY).must_succeed.json
      require "json"
      class Final; end
      HELD = Final.new
      FOUND = []
      Memintro.holders(Final)
      def make = 20.times { ObjectSpace.define_finalizer(Final.new, proc { FOUND << Memintro.holders("Final") if FOUND.empty? }) }
      make
      300.times { FOUND.empty? && GC.start }
      found = FOUND.first
      puts JSON.generate(sentence: found.sentence, bytes: found.bytes, count: found.objects, unreachable: found.unreachable)
    RUBY
    expect(found[:count]).to be_between(15, 21)
    expect(found[:bytes]).to eq(found[:count] * 40)
    expect(found[:sentence]).to match(/\ANo root leads to #{found[:unreachable]} of #{found[:count]} Final /)
  end

  it "name parts of Ruby's own objects: values of threads, receivers of enumerators, items of queues" do
    found = Dir.mktmpdir { |folder| run_ruby("data_parts.rb", File.join(folder, "a.ndjson")).must_succeed.json }
    edges = found[:edges]
    expect(edges[:value]).to include(%w[value OBJECT], %w[block proc])
    expect(edges[:exception]).to include(%w[exception OBJECT])
    expect(edges.values_at(:exception, :local).flatten(1).map(&:first)).not_to include("value")
    expect(edges[:fiber]).to include(%w[receiver ARRAY], %w[fiber fiber], ["next value", "ARRAY"])
    expect(edges).to include(queue: [%w[items ARRAY]], sized: [%w[items ARRAY]], strio: [%w[string STRING]],
                             generator: include(%w[receiver generator]), chain: [%w[enumerators ARRAY]])
    expect(edges[:arguments]).to include(%w[arguments ARRAY])
    expect(edges[:fiber_block]).to include(%w[block proc])
    expect(edges[:fiber_block].map(&:first)).not_to include("resumer")
    expect(found[:ways][:Failure]).to match([/\Aexception of Thread ← Hash\[\] ← /])
    expect(found[:ways][:Thing]).to include(
      /\Avalue of Thread ← /, /\AFailure\#@thing ← exception of Thread ← /,
      /items of Thread::Queue \(hidden T_ARRAY\) ← /,
      /\Areceiver of Method ← /, /\Aself of Binding at /, /\AThread \(thread-local :thing\) ← /
    )
    expect(found[:is_value]).to eq("Thing")
  end
end
