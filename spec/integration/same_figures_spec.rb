# frozen_string_literal: true

require "spec_helper"

# Three ways to ask for the same blocks must have the same answer: which line has how many, and how many bytes.
RSpec.describe "top, account and leaks" do
  def figures(without: [], **options)
    run_ruby("every_allocator.rb", extension("every_allocator.cc"), *without, **options).must_succeed.json
  end

  # Whether blocks and bytes are as expected, within a tolerance.
  def near(figures, expected, less, more)
    return false unless figures

    figures.zip(expected, less, more).all? { |figure, all, below, above| figure.between?(all - below, all + above) }
  end

  def expect_agreement(functions, said)
    said.each do |size, by_function|
      expected = by_function.delete(:expected)
      expect(by_function.size).to eq functions
      by_function.each do |name, (top, account, leaks)|
        told = "#{name} of #{size} bytes: #{top}, #{account}, #{leaks} of #{expected}"
        # Ruby itself may keep a little for the line.
        [top, leaks].each { |figures| expect(near(figures, expected, [0, 0], [3, 2_048])).to be(true), told }
        # Old pointers of Ruby's may claim a few small blocks for other rows; one of three large ones would be too many.
        expect(near(account, expected, expected.map { |all| all / 50 }, [3, 2_048])).to be(true), told
      end
    end
  end

  it "agree on blocks of every function and every class of sizes, started live and preloaded" do
    [nil, Subprocess::HOOK].each { |preload| expect_agreement(14, figures(env: { "LD_PRELOAD" => preload })) }
  end

  it "agree on them where jemalloc answers" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    preload = "#{Subprocess::HOOK}:#{jemalloc}"
    # It has no pvalloc.
    expect_agreement(13, figures(without: %w[pvalloc], env: { "LD_PRELOAD" => preload }))
  end
end
