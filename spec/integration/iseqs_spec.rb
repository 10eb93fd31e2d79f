# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "instruction sequences", :vm do
  # The story: ten thousand methods that cannot be seen.
  BIG_MODULE = <<~'RUBY'
    module BigModule
      10_000.times { |i| module_eval("def m#{i}(a) = a.map { |x| x + #{i} }", "/app/big_module.rb", 12) }
    end
  RUBY

  def answer_of(code, **options)
    run_ruby(code: "#{GCStress::UNDER_STRESS}\n#{code}", requires: %w[json objspace memintro], **options)
      .must_succeed.json
  end

  it "counts those that Ruby counts, without a wrapper for any" do
    result = answer_of(<<~RUBY)
      wrappers = -> { ObjectSpace.each_object(RubyVM::InstructionSequence).count }
      GC.stress = false
      GC.start
      under_stress = stressed { Array.new(5) { Memintro.iseqs.count } << Memintro.top_iseqs(nil).sum(&:count) }
      GC.start
      GC.disable
      before = wrappers.call
      iseqs = Memintro.iseqs
      rows = Memintro.top_iseqs(nil).sum(&:count)
      each = Memintro.each_iseq.count
      puts JSON.generate(ruby: ObjectSpace.count_imemo_objects[:imemo_iseq], count: iseqs.count, rows: rows, each: each,
                         bytes: iseqs.bytes, sum: Memintro.each_iseq.sum(&:bytes),
                         wrappers: [before, wrappers.call], under_stress: under_stress)
    RUBY
    expect(result[:under_stress]).to all(be_within(100).of(result[:count]))
    expect(result[:count]).to be > 500
    expect(result.values_at(:count, :rows, :each)).to all(eq(result[:ruby]))
    expect(result[:bytes]).to be > 100_000
    expect(result[:sum]).to eq(result[:bytes])
    expect(result[:wrappers].uniq.size).to eq(1)
  end

  # The slow twin: each by itself, put together in Ruby.
  it "puts together by path, location and label what each of them says, most bytes first" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      kinds = %i[path location label]
      2.times { kinds.each { |by| Memintro.top_iseqs(nil, by: by) } && Memintro.each_iseq {} }
      GC.start
      GC.disable
      each = Memintro.each_iseq.to_a
      sums = ->(by) { each.group_by(&by).map { |name, all| [name, all.size, all.sum(&:bytes)] } }
      groups = kinds.map { |by| Memintro.top_iseqs(nil, by: by).map { |row| [row.name, row.count, row.bytes] } }
      puts JSON.generate(same: kinds.zip(groups).map { |by, rows| rows.size == sums[by].size && (rows - sums[by]).empty? },
                         sorted: groups.map { |rows| rows.each_cons(2).all? { |one, other| one[2] >= other[2] } },
                         first: Memintro.top_iseqs.map(&:name) == groups[0].first(20).map(&:first))
    RUBY
    expect(result).to eq(same: [true] * 3, sorted: [true] * 3, first: true)
  end

  it "gives path, first line, label and bytes of each" do
    result = answer_of(<<~RUBY, flags: ["--disable-gems"])
      GC.stress = false
      code = "def one(a)\\n  a.each { |x| x + 1 }\\nend\\n"
      RubyVM::InstructionSequence.compile(code, "/app/one.rb").eval
      rows = stressed { Memintro.each_iseq.select { |iseq| iseq.path == "/app/one.rb" }.map(&:to_h) }
      puts JSON.generate(rows: rows)
    RUBY
    rows = result[:rows].reject { |row| row[:label] == "<compiled>" }
    labels = rows.map { |row| [row[:label], row[:lineno]] }
    expect(labels).to contain_exactly([/\A(Object#)?one\z/, 1], [/\Ablock in /, 2])
    expect(rows.map { |row| row[:bytes] }).to all(be_between(200, 3000))
  end

  it "shows ten thousand generated methods as one row with the line that generated them" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      GC.start
      before = Memintro.iseqs
      #{BIG_MODULE}
      after = Memintro.iseqs
      tops = %i[path location].to_h { |by| [by, Memintro.top_iseqs(1, by: by).first.to_h] }
      label = Memintro.top_iseqs(nil, by: :label).find { |row| row.name.end_with?("m9999") }.to_h
      puts JSON.generate(tops: tops, label: label, grown: [after.count - before.count, after.bytes - before.bytes])
    RUBY
    count, bytes = result[:grown]
    # Every method and its block; the eval's own sequences may still be there, or gone, with some from before.
    expect(count).to be_between(19_900, 30_200)
    [[:path, "/app/big_module.rb"], [:location, "/app/big_module.rb:12"]].each do |by, name|
      row = result[:tops][by]
      expect(row[:name]).to eq(name)
      expect(row[:count]).to be_between(20_000, 30_000)
      expect(row[:bytes]).to be_within(bytes / 20).of(bytes)
    end
    expect(result[:label]).to include(count: 1)
  end

  it "names what was evaluated without a file as Ruby does" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      eval("def without_file; end")
      eval("def odd; end", nil, "/caf\\xE9 bar\\n.rb".b, -3)
      found = ->(name) { Memintro.each_iseq.find { |iseq| iseq.label.end_with?(name) } }
      puts JSON.generate(eval: found["without_file"].path, same: method(:without_file).source_location[0],
                         odd: found["odd"].path.bytes, line: found["odd"].lineno,
                         rubys: method(:odd).source_location[1],
                         location: Memintro.top_iseqs(nil, by: :location).count { |row| row.name.end_with?(" bar\n.rb:-3") })
    RUBY
    expect(result[:eval]).to eq(result[:same]).and start_with("(eval")
    expect(result[:odd]).to eq("/caf\xE9 bar\n.rb".b.bytes)
    expect(result[:line]).to eq(result[:rubys]).and eq(-3)
    expect(result[:location]).to eq(1)
  end

  # `ObjectSpace.memsize_of` counts a wrapper's own slot, and what its iseq owns outside of the iseq's slot.
  OF_WRAPPERS = <<~'RUBY'
    SLOT = GC::INTERNAL_CONSTANTS[:BASE_SLOT_SIZE] || GC::INTERNAL_CONSTANTS[:RVALUE_SIZE]
    def bytes_by(wrapper)
      ObjectSpace.memsize_of(wrapper) - (ObjectSpace.dump(wrapper)[/"slot_size":(\d+)/, 1]&.to_i || SLOT) + SLOT
    end
  RUBY

  it "counts the bytes of each as Ruby does" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      #{OF_WRAPPERS}
      eval(<<~'CODE', nil, "/app/three.rb")
        def plain(a) = a ? [a, 1].map { |x| x } : nil
        def rescued; 5.times { |i| begin; puts i; rescue IOError => e; e; end }; end
        def keywords(*a, k: 1, **o, &b) = b.call(k, *a, **o)
      CODE
      names = %i[plain rescued keywords]
      found = Memintro.each_iseq.select { |iseq| iseq.path == "/app/three.rb" }
      ours = names.map { |name| found.find { |iseq| iseq.label.split("#").last == name.to_s }.bytes }
      puts JSON.generate(ours: ours, rubys: names.map { |name| bytes_by(RubyVM::InstructionSequence.of(method(name))) })
    RUBY
    expect(result[:ours]).to eq(result[:rubys]).and all(be > 300)
    expect(result[:ours].uniq.size).to eq(3)
  end

  # Ruby's own list of the heap, and a wrapper made for each iseq in it, as iseq_collector makes them.
  it "counts the bytes of all together as Ruby does" do
    code = OF_WRAPPERS + read_program("iseqs/sums.rb")
    result = answer_of(code, requires: %w[json objspace tempfile fiddle memintro])
    expect(result[:classes]).to eq(["RubyVM::InstructionSequence"])
    expect(result[:before]).to eq(result[:after]).and eq(result[:listed]).and eq(result[:wrapped])
    expect(result[:before][:count]).to be > 500
  end

  it "gives iseq_collector's figure under its name" do
    result = answer_of(<<~RUBY, requires: %w[json objspace memintro/iseq_collector])
      GC.stress = false
      GC.start
      GC.disable
      puts JSON.generate(theirs: ObjectSpace.memsize_of_all_iseq, ours: Memintro.iseqs.bytes)
    RUBY
    expect(result[:theirs]).to eq(result[:ours]).and be > 100_000
  end

  it "sorts the VM's own objects by kind, as Ruby counts them" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      Memintro.internals # its code is loaded before anything is counted
      GC.start
      under_stress = stressed { Array.new(4) { Memintro.internals.sum(&:count) } }
      ObjectSpace.count_imemo_objects
      GC.start
      GC.disable
      ruby = ObjectSpace.count_imemo_objects
      rows = Memintro.internals
      puts JSON.generate(ruby: ruby, ours: rows.to_h { |row| [row.name, row.count] }, bytes: rows.map(&:bytes),
                         under_stress: under_stress,
                         iseqs: [rows.find { |row| row.name == "imemo_iseq" }.bytes, Memintro.iseqs.bytes])
    RUBY
    %i[imemo_iseq imemo_ment imemo_cref].each { |kind| expect(result[:ours][kind]).to eq(result[:ruby][kind]) }
    # Between the two questions a call or two found its cache.
    expect(result[:ours].keys - result[:ruby].keys - %i[imemo_memo imemo_ifunc imemo_env]).to eq([])
    expect(result[:under_stress]).to all(be_within(200).of(result[:ours].values.sum))
    expect(result[:ours].values.sum).to be_within(30).of(result[:ruby].values.sum)
    expect(result[:bytes]).to eq(result[:bytes].sort.reverse).and all(be_positive)
    expect(result[:iseqs].uniq.size).to eq(1)
  end

  it "lets a block raise, throw and break, nested as well, and walks the heap as before" do
    result = answer_of(read_program("iseqs/leaving_blocks.rb"))
    expect(result[:found]).to eq(["on purpose", 3, true, true, true])
    expect(result[:after]).to eq(result[:before])
    expect(result[:tracked]).to be(true)
  end

  it "refuses wrong arguments in words" do
    result = answer_of(<<~RUBY)
      ask = ->(&block) { block.call rescue "\#{$!.class}: \#{$!.message}" }
      puts JSON.generate([ask.() { Memintro.top_iseqs(-1) }, ask.() { Memintro.top_iseqs(by: :file) }])
    RUBY
    expect(result).to eq(["ArgumentError: n is -1; it must be an Integer from 0, or nil",
                          "ArgumentError: by is :file; it must be one of :path, :location, :label"])
  end
end
