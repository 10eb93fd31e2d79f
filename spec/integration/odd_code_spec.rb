# frozen_string_literal: true

require_relative "../spec_helper"

# Code and classes that a program may have, and that lines, stacks and objects must be told of nevertheless.
RSpec.describe "odd code" do
  def answer(code)
    JSON.parse(run_ruby(code: code, requires: %w[memintro json fiddle]).must_succeed.stdout, symbolize_names: true)
  end

  # Code that ends while the collector marks is freed in the same collection. Here its path changes in place instead of
  # the code at its address.
  [1, 16].each do |depth|
    it "is asked for anew when the collector has marked, in call sites of #{depth} lines" do
      found = answer(<<~RUBY)
        big = Array.new(100_000) { |i| [i] }
        KEEP = []
        code = eval("-> { KEEP << ('x' * 20_000) }", TOPLEVEL_BINDING, "\#{'a' * 700}.rb", 1)
        string = Fiddle::Pointer.new(Fiddle.dlwrap(code.source_location[0]))
        path = Fiddle::Pointer.new(string[24, 8].unpack1("J"))
        state = -> { GC.latest_gc_info(:state) }
        seen = []
        steps = [
          -> { GC.start(immediate_mark: false, immediate_sweep: false) },
          -> { path[0] = "b".ord },
          -> { Object.new while state.call == :marking }
        ]
        Memintro.start(stack_depth: #{depth})
        steps.each do |step|
          step.call
          seen << [state.call, GC.count]
          code.call
        end
        names = Memintro.top(nil).select { |site| site.name.end_with?("aaa.rb:1") }
        puts JSON.generate(seen: seen, sites: names.to_h { |site|
          [site.name[0], site.each_block.count { |size,| size > 19_000 }]
        })
      RUBY
      (first, count), (second, same), (last, still) = found[:seen]
      expect([first, second, same, still]).to eq(["marking", "marking", count, count])
      expect(last).not_to eq("marking")
      # The second one is from the cache, which shows that the third one is not.
      expect(found[:sites]).to eq(a: 2, b: 1)
    end
  end

  it "may have classes that raise whatever they are asked" do
    found = answer(read_program("odd_code/raising_classes.rb"))
    expect(found[:count]).to eq(150)
    expect(found[:refused]).to end_with("an object of Bare is neither")
  end
end
