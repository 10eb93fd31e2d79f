# frozen_string_literal: true

require_relative "../spec_helper"

# Checks of a native gem in its tests, run by a real rake with a real Minitest and RSpec. planted.c has the mistakes.
RSpec.describe "Memintro::MemCheck" do
  before { skip "only on x86-64" unless RUBY_PLATFORM.start_with?("x86_64") }

  SOURCE_OF_PLANTED = File.join(NativePrograms::MODULES, MemChecks::PLANTED)

  # The line of the fixture that has this text, after the one that begins this function.
  def line_of(function, text)
    lines = File.readlines(SOURCE_OF_PLANTED)
    from = lines.index { |line| line.match?(/\b#{function}\(/) }
    from + lines.drop(from).index { |line| line.include?(text) } + 1
  end

  def clean(**options) = mem_check(**options, env: { "TESTS" => "test/clean_test.rb", **options.fetch(:env, {}) })

  it "name each planted mistake with its count, bytes, function and line of C, and nothing else" do
    told = mem_check
    expect(told.first).to match(/\Amem_check: 7 findings in planted\.so: \d+ blocks \(.* KiB\) lost\. The tests passed\.\z/)
    expect(told.titles).to contain_exactly(
      /\A40 blocks \(4\.7 KiB\) of planted\/kept, which has no free function, from kept_alloc \(planted\.c:#{line_of("kept_alloc", "calloc")}\) at .*planted_test\.rb:\d+\z/,
      /\A50 blocks \(3\.1 KiB\) that nothing points to from lose \(planted\.c:#{line_of("lose", "malloc")}\) at .*planted_test\.rb:14\z/,
      /\A20 blocks \(1\.4 KiB\) that nothing points to from leak_ruby \(planted\.c:#{line_of("leak_ruby", "xmalloc")}\)/,
      /\A1 block \(56 B\) that nothing points to from leak_pair/,
      /\A1 block \(40 B\) that only leaked blocks point to from inner/,
      /\A1 block \(88 B\) that nothing points to from lose \(.*\) at \(outside of Ruby\):1\z/,
      /\A7 addresses registered and never taken back by hold \(planted\.c:#{line_of("hold", "rb_gc_register_address")}\)/,
      /\Aplanted\.so\(.*twice.*\) registered 2 times by again/
    ).or contain_exactly(*Array.new(8) { anything })
    expect(told.status).to eq 3
  end
end
