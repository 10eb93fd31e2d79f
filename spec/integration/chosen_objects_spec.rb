# frozen_string_literal: true

require_relative "../spec_helper"

# `Memintro.start(objects: [Message, "Hash"])`: only objects of these classes, by the line that made them.
RSpec.describe "objects of chosen classes" do
  def objects(code, **options) = run_ruby(code: code, requires: %w[memintro json], **options).must_succeed.json

  it "tracks only chosen classes and their subclasses, exactly, also those that come later" do
    answer = objects(<<~'RUBY')
      class Base; end
      class Child < Base; end
      Memintro.start(objects: [Base, "Later", "Array", "Mod::Inner", "Renamed"])
      kept = Array.new(100) { [Base.new, Child.new, Object.new, "text", { a: 1 }] }
      line = __LINE__ - 1
      flat = [[1, [2]], [3, [4]]].then { |nested| Array.new(50) { nested.flatten } }
      Later = Class.new(String)
      class Mod; class Inner; end; end
      late = Array.new(70) { Later.new("x") } + Array.new(30) { Mod::Inner.new }
      anonymous = Class.new
      nameless = Array.new(40) { anonymous.new }
      Renamed = anonymous
      named = Array.new(20) { anonymous.new }
      20.times { 100.times { Class.new.new }; GC.start; 100.times { Base.new } }
      GC.compact
      more = Array.new(25) { Child.new }
      GC.start
      sites = Memintro.top(nil).select { |site| site.kind == :ruby }
      sums = Hash.new(0)
      sites.each { |site| site.classes.each { |name, (count, _)| sums[name] += count } }
      at = Memintro["-e:#{line}"].classes.transform_values(&:first)
      gone = kept.size
      kept = nil
      GC.start
      after = Memintro["-e:#{line}"].classes["Base"].to_a.first.to_i
      Memintro.start(objects: ["Base"])
      fresh = Array.new(10) { Base.new }
      again = Memintro.top(nil).sum(&:live_objects)
      puts JSON.generate(at: at, sums: sums, flat: Memintro["-e:#{line + 2}"] ? 1 : 0, after: after, again: again)
    RUBY
    expect(answer[:at].keys).to contain_exactly(:Array, :Base, :Child)
    expect(answer[:at]).to include(Base: 100, Child: 100)
    expect(answer[:at][:Array]).to be_between(101, 103)
    sums = answer[:sums]
    expect(sums.slice(:Later, :"Mod::Inner", :Renamed)).to eq(Later: 70, "Mod::Inner": 30, Renamed: 20)
    # The stack may hold a few.
    expect(sums[:Base]).to be_between(100, 105)
    expect(sums[:Child]).to eq(125)
    expect(sums[:Array]).to be_between(150, 200)
    expect(sums.keys & %i[Object String Hash]).to eq([])
    expect([answer[:after], answer[:again]]).to match([be < 4, 10])
  end

  it "agrees with each_object on the live count of each chosen class, with objects that Ruby hides at first" do
    answer = objects(<<~'RUBY')
      class Word < String; end
      class Row < Struct.new(:a, :b); end
      Memintro.start(objects: %w[Word Row])
      kept = []
      5_000.times do |i|
        kept << Word.new("w" * (i % 60)) << Row.new(i, "b")
        kept << Marshal.load(Marshal.dump(kept.last)) << kept.last.dup << kept[-3].clone
        kept << Word.new("w").gsub("w", "v") << Word.new("w").freeze << Word.new("w").tap(&:singleton_class)
        kept.shift(5) if (i % 3).zero?
      end
      GC.start
      truth = [Word, Row].map { |type| ObjectSpace.each_object(type).count }
      sums = Memintro.top(nil).each_with_object(Hash.new(0)) do |site, all|
        site.classes.each { |name, (count, _)| all[name] += count }
      end
      puts JSON.generate(truth: truth, ours: sums.values_at("Word", "Row"), live: Memintro.top(nil).sum(&:live_objects))
    RUBY
    expect(answer[:truth]).to all(be > 1_000)
    expect(answer[:ours]).to eq(answer[:truth])
    expect(answer[:live]).to eq(answer[:truth].sum)
  end

  it "takes classes from flags and variables, and says what is wrong with others" do
    code = "class Message; end; KEPT = Array.new(10_000) { [Message.new] }"
    [[%w[--objects=Message,Later], {}], [[], { "MEMINTRO_OBJECTS" => "Message" }]].each do |flags, env|
      result = run_memintro("run", *flags, "--top", "50", "--", RbConfig.ruby, "-e", code, env: env)
      expect(result.stderr).to match(/ 10,000 .* -e:1$/)
    end
    refused = run_memintro("run", "--objects=message", "--", RbConfig.ruby, "-e", "")
    expect(refused.stderr).to include('--objects is "message"; it must be 1, 0, sampled, or names of classes such as')
    wrong = { [] => ArgumentError, ["text"] => ArgumentError, [Comparable] => ArgumentError, [7] => TypeError,
              7 => TypeError, [Object.new.singleton_class] => ArgumentError }
    wrong.each { |value, error| expect { Memintro.start(objects: value) }.to raise_error(error, /objects is /) }
    expect { Memintro.start(objects: [Comparable]) }
      .to raise_error("objects is [Comparable]; it must be true, false, :sampled, or an Array of classes and " \
                      "names of classes: Comparable is a module; name the classes that include it")
  end
end
