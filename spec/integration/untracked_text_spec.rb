# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# Looking at figures must not change them: what a console or a one-liner shows is made outside of tracking.
RSpec.describe "What inspect and to_s allocate" do
  # Prints the bytes and calls that the current thread asked malloc for while each of them was shown, many times over.
  def shown
    run_ruby(code: read_program("untracked_text/shown.rb")).must_succeed.json
  end

  it "is in no figure" do
    answer = shown
    expect(answer[:texts].values).to all(be > 20)
    expect(answer[:texts][:top]).to be > 2_000
    # Two blocks that hold a call's frames, or the like, may be Ruby's own; a text would be 30 times its size.
    expect(answer[:bytes]).to all(satisfy { |_name, bytes| bytes.between?(0, 600) })
    expect(answer[:mine]).to eq([])
  end

  it "is a text also where the extension is not loaded, which showing does not load" do
    Dir.mktmpdir do |folder|
      %w[list value_object untracked_text units].each do |name|
        FileUtils.cp(File.join(Subprocess::LIB, "memintro/support", "#{name}.rb"), folder)
      end
      answer = run_ruby(code: <<~RUBY, requires: ["#{folder}/value_object", "#{folder}/list"], chdir: folder)
        class Pair
          include Memintro::ValueObject
          ATTRIBUTES = %i[a].freeze
          def a = 1
          def inspect = "#<Pair \#{a}>"
          alias to_s inspect
        end
        puts Memintro::List.new([Pair.new, 2]).inspect, Pair.new.to_s, defined?(Memintro::Native).inspect
      RUBY
      expect(answer.must_succeed.stdout).to eq("#<Memintro::List 2 rows:\n  #<Pair 1>\n  2>\n#<Pair 1>\nnil\n")
    end
  end
end
