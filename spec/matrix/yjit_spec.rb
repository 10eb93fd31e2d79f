# frozen_string_literal: true

require_relative "../spec_helper"

# Compiled code names its line as interpreted code does, down to the leaf method that runs hottest.
RSpec.describe "Call sites under YJIT", :vm do
  FLAGS = %w[--yjit --yjit-call-threshold=5].freeze

  # If the matrix says that there is a compiler, its absence is a failure.
  before do
    has_yjit = run_ruby(code: "exit RubyVM::YJIT.enabled?", requires: [], flags: FLAGS).success?
    unless has_yjit
      raise "this Ruby was built to have YJIT and does not have it" if ENV["MEMINTRO_MATRIX_YJIT"] == "1"

      skip "Ruby #{RUBY_VERSION} is built without YJIT"
    end
  end

  it "are right in a Ruby without libruby" do
    skip "this Ruby is built with libruby" unless RbConfig::CONFIG["ENABLE_SHARED"] == "no"
    code = "Memintro.start; $kept = 'x' * 50_000; warn Memintro['-e:1'].live_bytes; puts File.read('/proc/self/maps')"
    result = run_ruby(code: code, flags: FLAGS).must_succeed
    expect(result.stdout).to include("/memintro.so").and include("/libmemintro_hook.so")
    expect(result.stdout).not_to include("libruby")
    expect(result.stderr.to_i).to be_between(50_000, 60_000)
  end

  def sites(way)
    script = File.join(__dir__, "support", "yjit_sites.rb")
    run_command(RbConfig.ruby, *FLAGS, "-I#{Subprocess::LIB}", "-rmemintro", script, way: way).must_succeed.json
  end

  TruthDriver::WAYS.each do |way|
    it "are right, without a crash, for the compiler's own allocations, #{way}" do
      script = File.join(__dir__, "support", "yjit_compiling.rb")
      found = run_command(RbConfig.ruby, *FLAGS, "-I#{Subprocess::LIB}", "-rmemintro", script, way: way)
              .must_succeed.json
      expect(found).to include(strays: [], missed_frees: 0)
      # 3.1 does not tell how much it compiled.
      expect(found[:compiled]).to be >= 400 if RUBY_VERSION >= "3.3"
    end

    it "are the exact lines of a hot leaf method, each with all of its calls and no others, #{way}" do
      found = sites(way)
      # 3.1 does not tell how much it compiled.
      expect(found).to include(yjit: true, compiled: RUBY_VERSION >= "3.3", strays: [])
      # One buffer for each of 20,000 calls; a hash takes more than one, the same number each time.
      expect(found[:interpolation]).to match([20_000, be_between(20_000 * 1301, 20_000 * 1310)])
      # Up to 3.2 young arrays live in Ruby's own transient heap.
      expect(found[:array]).to eq(RUBY_VERSION < "3.3" ? nil : [20_000, 20_000 * 100 * 8])
      # The line at which the heap grows also has the records of the new pages.
      expect(found[:call]).to match([be_between(20_000, 20_040), be_between(20_000 * 901, 20_000 * 910)])
      # A method of C's, and one of Ruby's: what that allocates is its own line's, and not that of the call.
      expect(found[:ljust]).to match([be_between(20_000, 20_040), be_between(20_000 * 901, 20_000 * 910)])
      expect(found[:body]).to match([be_between(20_000, 20_040), be_between(20_000 * 1001, 20_000 * 1010)])
      expect(found[:called]).to be_nil
      expect(found[:hash].first).to eq(20_000).or eq(40_000).or eq(60_000)
    end
  end
end
