# frozen_string_literal: true

require_relative "../spec_helper"

# A Ruby that does not have what memintro asks it for, as a future one may not.
RSpec.describe "A Ruby that lacks a function" do
  def ruby_without(function, code)
    blind = NativePrograms.build(File.join(__dir__, "support", "blind.c"), "libblind.so", ["-shared", "-fPIC", "-ldl"])
    run_ruby(code: code, env: { "LD_PRELOAD" => blind, "BLIND_TO" => function }).must_succeed.stdout
  end

  %w[rb_sourceline rb_profile_frames ruby_thread_has_gvl_p].each do |function|
    it "loads memintro, counts by native caller, and its doctor says what is missing (#{function})" do
      code = "Memintro.start; $kept = Array.new(100) { 'x' * 5000 }; Memintro.stop; " \
             "puts Memintro.each_call_site.map(&:kind).uniq.inspect, Memintro.totals.live_bytes > 500_000, " \
             "Memintro.doctor[:problems]"
      kinds, counted, *problems = ruby_without(function, code).lines(chomp: true)
      expect(kinds).to include(":native")
      expect(kinds).not_to include(":ruby")
      expect(counted).to eq("true")
      expect(problems.join).to include("Ruby #{RUBY_VERSION} does not have #{function}: call sites are native callers")
    end
  end

  it "that only spares work is not missed" do
    code = "Memintro.start; $kept = 'x' * 50_000; puts Memintro['-e:1'].live_bytes >= 50_000; " \
           "puts Memintro.doctor[:problems]"
    expect(ruby_without("rb_source_location_cstr", code)).to eq("true\n")
    expect(ruby_without("ruby_current_ec", code)).to eq("true\n")
  end
end
