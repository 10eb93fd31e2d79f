# frozen_string_literal: true

require "spec_helper"

# Programs that use the bytes between the size of a block and the next one, which glibc leaves them.
RSpec.describe "In-band records, in programs that use bytes behind their blocks" do
  # Whatever SPEC_RECORDS says.
  let(:in_band) { { "MEMINTRO_RECORDS" => "auto" } }

  def run_native(name, env:, way:) = native(program("in_band.c"), name, way: way, env: env)

  before { skip "only on x86-64 and glibc" unless RbConfig::CONFIG["host"].match?(/x86_64.*gnu/) }

  %i[preloaded live].each do |way|
    it "are out of the way where a program asks how much it may use, also of a block resized past the hook (#{way})" do
      figures = run_native("resized_in_place", way: way, env: in_band)
      expect(figures).to include(short_of: 0, lost: 0)
      expect(figures[:in_place]).to be > 500
    end

    it "harm no program that reads or writes the bytes behind its blocks, as one without a terminator does (#{way})" do
      figures = run_native("uses_slack", way: way, env: in_band)
      expect(figures).to include(unterminated: 0, unequal: 0, lost: 0, lost_by_moves: 0, missed: 0)
      # Records were written over, so this was no program without any.
      expect(figures[:dropped]).to be_between(1, 200)
    end
  end

  it "leave a text without a terminator to a Ruby program as it was" do
    # Fiddle calls the library's calloc, behind the hook that Ruby has started.
    program = <<~'RUBY'
      named = Fiddle::Function.new(Fiddle.dlopen(ARGV[0])["name_of"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOIDP)
      text = "abcdefghijklmnopqrstuvwxyz012345"
      Memintro.start
      names = Array.new(1_000) do
        name = named.call(text)
        name.to_s.tap { Fiddle.free(name.to_i) }
      end
      puts JSON.generate(wrong: names.reject { |name| name == text }, frees: Memintro.totals.frees)
    RUBY
    library = shared_module("unterminated.c")
    figures = run_ruby(nil, library, code: program, requires: %w[json fiddle memintro], env: in_band).must_succeed.json
    expect(figures[:wrong]).to eq([])
    expect(figures[:frees]).to be >= 1_000
  end
end
