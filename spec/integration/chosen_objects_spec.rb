# frozen_string_literal: true

require_relative "../spec_helper"

# `Memintro.start(objects: [Message, "Hash"])`: only objects of these classes, by the line that made them.
RSpec.describe "objects of chosen classes" do
  def objects(code, **options) = run_ruby(code: code, requires: %w[memintro json], **options).must_succeed.json

  it "tracks only chosen classes and their subclasses, exactly, also those that come later" do
    answer = objects(read_program("chosen_objects/chosen.rb"))
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
    answer = objects(read_program("chosen_objects/agrees.rb"))
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
