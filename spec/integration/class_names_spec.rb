# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# Names on the screen are names that can be asked for.
RSpec.describe "names of classes", :vm do
  it "can all be selected, as each command prints them" do
    Dir.mktmpdir do |folder|
      found = run_ruby("class_names.rb", File.join(folder, "a.ndjson")).must_succeed.json
      expect(found[:refused]).to eq([])
      expect(found[:names]).to include(
        "Plain", "Within::Part", "Class", "Module", "(anonymous class < Struct)", "#<Class>::Below",
        "(singleton class)", "(hidden singleton class)", "(included module)", "(hidden T_ARRAY)",
        "imemo_iseq", "imemo_ment", "Thread", "STRING"
      )
      expect(found[:names].size).to be > 60
      expect(found[:live].values).to all(be_positive)
    end
  end

  it "are no empty text, and none that is not UTF-8" do
    said = run_ruby(code: <<~'RUBY', requires: %w[json memintro]).must_succeed.json
      puts JSON.generate(["", "\xFF\xFE"].map { |name| Memintro.holders(name) rescue "#{$!.class}: #{$!.message}" })
    RUBY
    expect(said).to eq(['ArgumentError: of is "", which no class can be called; give the name of one',
                        'ArgumentError: of is "\\xFF\\xFE", which no class can be called; give the name of one'])
  end
end
