# frozen_string_literal: true

require_relative "../spec_helper"

# A real other Ruby beside this one: the extension of this one would crash it.
RSpec.describe "A program of another Ruby" do
  let(:other) do
    others = Dir["/usr/bin/ruby[0-9]*.[0-9]*"].reject { |file| file.end_with?(RUBY_VERSION[/\A\d+\.\d+/]) }
    others.first or skip "there is one Ruby here"
  end

  it "runs as it would under memintro run, with one line on standard error" do
    code = "a = Array.new(1_000) { |i| [i] * 100 }; print RUBY_VERSION, ' ', a.size; exit 3"
    result = run_memintro("run", "--", other, "-e", code)
    expect([result.stdout, result.status.exitstatus]).to eq(["#{other[/[\d.]+\z/]}#{result.stdout[/\.\d+ /]}1000", 3])
    expect(result.stderr.lines)
      .to match([/\Amemintro: not tracking process \d+: .* compiled for Ruby #{RUBY_VERSION}\. There is no build for /])
  end

  it "gets an error that names the missing build when it requires memintro" do
    result = run_command(other, "-I#{Subprocess::LIB}", "-e", <<~RUBY)
      begin
        require "memintro"
      rescue LoadError => e
        puts e.message
      end
    RUBY
    expect(result.must_succeed.stdout).to include("was compiled for Ruby #{RUBY_VERSION}", "There is no build for Ruby")
  end
end
