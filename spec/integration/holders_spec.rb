# frozen_string_literal: true

require_relative "../spec_helper"

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
        generic: ["@mark"], identity: ["key", '["key"]'], large: (1..100).map { |key| "[#{key}]" },
        default: ["default"], method: include("receiver", "owner"), binding: include("self", "locals"),
        match: contain_exactly("regexp", "string"), array: ["[0]", "[2]"]
      )
      expect(@found[:plain]).to include("superclass", "@@shared", "::CONSTANT", "method initialize")
      expect(@found[:env]).to include("local captured")
      expect(@found[:at]).to end_with("heap_edges.rb:21")
    end

    it "tell local variables of other threads and fibers, and global variables" do
      expect(@found[:named][:fiber].grep(/local in_fiber at .*heap_edges\.rb:33\z/).size).to eq(1)
      expect(@found[:threads].grep(/local in_thread at .*heap_edges\.rb:40\z/).size).to eq(1)
      expect(@found[:globals]).to include("$kept", "$stdin", /\AC address registered \(/)
    end
  end

  it "finds objects by class, size and condition, whatever they answer" do
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

  it "names the guilty holder on the first line, in seven programs" do
    found = run_ruby("heap_stories.rb").must_succeed.json
    first = found[:sentences]
    expect(first).to include(
      messages: match(/\A500 of 500 Message: Archive\#@recent \(Array\) .*Bus\#@subscribers \(Array\) ← \$bus/),
      cache: start_with("500 of 500 Cached: Cache::STORE (Hash)"),
      closure: match(/\A100 of 100 Env: local env of block at .*heap_stories\.rb:21 .* ← \$callbacks/),
      thread: match(/\A50 of 50 Job: Thread at .*heap_stories\.rb:\d+ \(thread-local :jobs\)/),
      registry: start_with("999 of 1,000 objects: Registry").or(start_with("1,000 of 1,000 objects: Registry"))
    )
    # Ruby 3.4 does not report its finalizers among the roots.
    expected = RUBY_VERSION < "3.4" ? /\A70 of 70 Finalized: local captured .*finalizer/ : /Finalized/
    expect(first[:finalizer]).to match(expected)
    expect(found).to include(referrers: include("Array[7]"), same: true, frozen: true, retained: be > 500 * 40)
    expect(found[:path].join("\n")).to include('Array[7] ← Archive#@recent')
  end
end
