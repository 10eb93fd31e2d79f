# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "the histogram of classes", :vm do
  def answer_of(code, **options)
    run_ruby(code: "#{GCStress::UNDER_STRESS}\n#{code}", requires: %w[json objspace set memintro], **options)
      .must_succeed.json
  end

  it "adds up to what Ruby counts on the same heap" do
    result = answer_of(read_program("histogram/sums.rb"))
    # The few objects that the calls between themselves take.
    expect(result[:ours] - result[:objects]).to be_between(0, 20)
    bytes = result[:bytes] + (RUBY_VERSION < "3.2" ? result[:hidden] : 0)
    expect(bytes - result[:memsize]).to be_between(0, 1000)
    expect(result[:memsize]).to be > 10_000_000
    expect(result[:imemo][1] - result[:imemo][0]).to be_between(0, 10)
    expect(result[:float].uniq.size).to eq(1)
    expect(result[:strings][0]).to be_within(100).of(result[:strings][1])
  end

  it "counts each class as each_object does, for classes with any methods" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      class Liar < Struct.new(:a)
        def self.name = raise("asked")
        def self.to_s = raise("asked")
        def self.inspect = raise("asked")
        def class = String
      end
      module Deep; class Thing; end; end
      $kept = [Array.new(1234) { Liar.new(1) }, Array.new(777) { Deep::Thing.new }]
      names = stressed { Memintro.histogram.to_h { |row| [row.name, row.count] } }
      puts JSON.generate(names.slice("Liar", "Deep::Thing"))
    RUBY
    expect(result).to eq(Liar: 1234, "Deep::Thing": 777)
  end

  # The slow twin: each object by itself.
  it "agrees with Ruby on the objects of each class, of any kind" do
    result = answer_of(<<~'RUBY')
      GC.stress = false
      makers = { String => ->(c, i) { c.new("x" * i) }, Array => ->(c, i) { c.new(i) }, Object => ->(c, _) { c.new },
                 Hash => ->(c, i) { c.new.update((1..i).to_h { |n| [n, n] }) }, Regexp => ->(c, i) { c.new("a" * (i + 1)) },
                 Struct.new(:a, :b) => ->(c, i) { c.new(i) }, Exception => ->(c, i) { c.new(i.to_s) },
                 Thread::Queue => ->(c, i) { c.new.push(i) }, Module => ->(c, _) { c.new }, Set => ->(c, i) { c.new([i]) } }
      kinds = makers.keys.map.with_index { |base, n| Object.const_set("Kind#{n}", Class.new(base)) }
      $kept = kinds.zip(makers.values).map.with_index do |(kind, maker), n|
        Array.new(60 + n) { |i| maker.call(kind, i).tap { |object| def object.own = 1 if i % 5 == 0 } }
      end
      rows = Memintro.histogram.to_h { |row| [row.name, [row.count, row.bytes]] }
      theirs = kinds.to_h do |kind|
        objects = ObjectSpace.each_object(kind).select { |object| object.instance_of?(kind) }
        [kind.name, [objects.size, objects.sum { |object| ObjectSpace.memsize_of(object) }]]
      end
      puts JSON.generate(ours: rows.slice(*theirs.keys), theirs: theirs)
    RUBY
    expect(result[:ours]).to eq(result[:theirs])
    expect(result[:theirs].values.map(&:first)).to eq((60..69).to_a)
  end

  it "names what has no name: anonymous and singleton classes, and what Ruby hides" do
    result = answer_of(<<~'RUBY')
      GC.stress = false
      class Base; end
      anonymous = Array.new(3) { Class.new(Class.new(Base)) }
      outer = Class.new { const_set(:Inner, Class.new) }
      $kept = [anonymous.map { |c| Array.new(100) { c.new } }, Array.new(60) { outer::Inner.new },
               Array.new(500) { String.new("x").tap { |s| def s.own = 1 } }, Array.new(40) { BasicObject.new }]
      rows = stressed { Memintro.histogram.to_h { |row| [row.name, [row.count, row.internal?]] } }
      seen = ["(anonymous class < Base)", "#<Class>::Inner", "BasicObject", "(singleton class)"]
      puts JSON.generate(rows: rows.slice(*seen), singletons: ObjectSpace.each_object(Class).count(&:singleton_class?),
                         hidden: rows.select { |_, (_, internal)| internal }.keys,
                         addresses: rows.keys.grep(/0x/), empty: rows.keys.grep(/\A\s*\z/))
    RUBY
    expect(result[:rows]).to include("(anonymous class < Base)": [300, false], "#<Class>::Inner": [60, false],
                                     BasicObject: [40, false])
    expect(result[:rows][:"(singleton class)"][0]).to be_within(20).of(result[:singletons])
    expect(result[:hidden]).to include("imemo_iseq", "(included module)")
    expect(result[:addresses] + result[:empty]).to eq([])
  end

  it "keeps nothing alive and leaks nothing hidden" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      def make = Array.new(300) { Class.new.new.tap { |o| def o.own = 1 } } && nil
      GC.start
      before = ObjectSpace.each_object(Class).count
      make
      rows = stressed { Memintro.histogram }
      4.times { GC.start }
      after = ObjectSpace.each_object(Class).count
      kinds = rows.flat_map { |row| [row.name.class, row.count.class, row.bytes.class] }.uniq
      puts JSON.generate(grown: after - before, kinds: kinds.map(&:name).sort,
                         reachable: ObjectSpace.reachable_objects_from(rows[0]).map { |o| o.class.name })
    RUBY
    expect(result[:grown]).to be_between(-50, 50)
    expect(result[:kinds]).to eq(%w[Integer String])
    expect(result[:reachable] - %w[Class String]).to eq([])
  end

  it "sorts by bytes or by count and gives as many rows as asked for" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      $kept = "x" * 50_000_000
      by_bytes = Memintro.histogram
      by_count = Memintro.histogram(nil, by: :count)
      puts JSON.generate(first: stressed { Memintro.histogram(1).map(&:name) }, bytes: by_bytes.map(&:bytes), none: Memintro.histogram(0),
                         count: by_count.map(&:count), size: Memintro.histogram(7).size,
                         list: [by_bytes.class, by_bytes.frozen?], inspect: by_bytes.inspect.bytesize)
    RUBY
    expect(result).to include(first: ["String"], none: [], size: 7, list: ["Memintro::List", true])
    expect(result[:bytes]).to eq(result[:bytes].sort.reverse)
    expect(result[:count]).to eq(result[:count].sort.reverse)
    expect(result[:inspect]).to be < 8_300
  end
end
