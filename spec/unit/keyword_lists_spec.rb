# frozen_string_literal: true

require_relative "../spec_helper"

# Ruby 3.1 loses the list of a call's keywords when it frees the code of a file or of a class body, and Memintro.leaks
# says so. What `require "memintro"` loads leaves none of these to the program.
RSpec.describe "calls with keywords that run once" do
  ONCE = %i[top class].freeze

  # The lists of keywords of one piece of code, and of the class bodies in it.
  def lists(code)
    return [] unless ONCE.include?(code[9])

    code.last.grep(Array).flatten(1).flat_map do |operand|
      case operand
      when Hash then [operand[:kw_arg]].compact
      when Array then operand[0] == code[0] ? lists(operand) : []
      else []
      end
    end
  end

  def lists_of(text) = lists(RubyVM::InstructionSequence.compile(text).to_a)

  it "are found" do
    skip "of this Ruby's compiler" unless RUBY_ENGINE == "ruby"

    expect(lists_of("class A; B.new(c: 1, d: 2); def e = f(g: 1); end; h(i: 1)")).to contain_exactly(%i[c d], %i[i])
    expect(lists_of("class A; B.new({ c: 1, d: 2 }); end")).to eq([])
  end

  it "are in none of the files that are loaded at once" do
    files = run_ruby(code: "puts $LOADED_FEATURES.grep(%r{/lib/memintro})", requires: ["memintro"])
              .must_succeed.stdout.lines(chomp: true).grep(/\.rb\z/)
    expect(files.size).to be > 5
    expect(files.to_h { |file| [file, lists_of(File.read(file))] }.reject { |_, found| found.empty? }).to eq({})
  end
end
