# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Programs that make namespaces, as supervisors of containers do.
RSpec.describe "A process that makes its children in another PID namespace" do
  it "finds these children as without memintro, which refuses to make a copy there" do
    skip "only root can do that" unless Process.uid.zero?
    found = Dir.mktmpdir do |folder|
      code = read_program("harm_namespaces/program.rb")
      result = run_ruby(nil, folder, code: code, requires: %w[json fiddle memintro])
      skip "namespaces are refused here" if result.status.exitstatus == 99
      result.must_succeed.json
    end
    # From Ruby 3.3 on, each child takes a second number for its timer thread.
    expect(found[:numbers]).to eq([1, 2, 3]).or eq([1, 3, 5])
    expect(found[:said].size).to eq(8)
    expect(found[:said]).to all(match(/\AMemintro::\w+Error: .* another PID namespace \(unshare, setns\)/))
  end
end
