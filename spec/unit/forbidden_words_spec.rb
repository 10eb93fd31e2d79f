# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/lint/words"

# `rake lint:words` finds words that the glossary of RULES.md forbids.
RSpec.describe ForbiddenWords do
  root = File.expand_path("../..", __dir__)
  # For each pattern a text that it must find, where that is not the word itself.
  planted = { "chunk" => "memory chunks", "used" => "used bytes", "active" => "active blocks",
              "retained" => "retained blocks", "location" => "allocation location", "origin" => "allocation origin",
              "stack" => "allocation stack", "type" => "type of a call site", "margin" => "error margin",
              "lost" => "lost free", "missed" => "missed events", "chart" => "charts", "graph" => "a graph",
              "wrapper" => "malloc wrapper" }

  # The findings in a folder with these files and the rules of this checkout, and with these lines below them.
  define_method(:wrong_with) do |files, rules = ""|
    Dir.mktmpdir do |folder|
      { "RULES.md" => File.read(File.join(root, "RULES.md")) + rules, **files }.each do |path, text|
        FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
        File.write(File.join(folder, path), text)
      end
      described_class.new(folder).wrong
    end
  end

  it "finds nothing wrong in the files of this checkout" do
    words = described_class.new(root)
    expect(words.wrong).to eq([])
    expect(words.files).to include("README.md", "crates/hook/src/stubs.rs", "ext/memintro/src/lib.rs")
  end

  { ["docs/heap.md", "RSS\n\nThe memory usage.\n"] => "docs/heap.md:3: \"memory usage\": say RSS",
    ["README.md", "Lite mode\n"] => "README.md:1: \"lite mode\": say full mode or sampled mode",
    ["lib/memintro/a.rb", "# No agent.\n"] => "lib/memintro/a.rb:1: \"agent\": say listening or control socket or hook",
    ["ext/memintro/src/a.rs", "\n/// A shim.\n"] => "ext/memintro/src/a.rs:2: \"shim\": say hook",
    ["lib/a.rb", "  # How the memory\n  # usage grows.\n"] => "lib/a.rb:1: \"memory usage\": say RSS",
    ["crates/a/a.rs", "/// A chunk of\n/// memory\n"] => "crates/a/a.rs:1: \"chunk\": say block" }
    .each do |(path, text), message|
    it "says #{message}" do
      expect(wrong_with({ path => text })).to eq([message])
    end
  end

  it "finds each word by its pattern" do
    described_class::PATTERNS.each_key do |word|
      expect(wrong_with({ "docs/heap.md" => planted.fetch(word, word) }))
        .to match([/\Adocs\/heap\.md:1: "#{word}": say /])
    end
  end

  it "allows the same words in another sense" do
    text = "chunks, a user agent, used memory, a stack, the origin, missed frees, a byte of code, margin: 0, " \
           "a line, every process\n"
    expect(wrong_with({ "docs/heap.md" => text })).to eq([])
  end

  it "refuses a forbidden word of the glossary that it does not list, and the other way round" do
    expect(wrong_with({}, "| **pause** | a wait | nap |\n"))
      .to eq(["rakelib/lint/words.rb does not list \"nap\", which RULES.md forbids"])
    expect(wrong_with({ "RULES.md" => "| **pause** | a wait | shim |\n" }))
      .to include("rakelib/lint/words.rb lists \"agent\", which RULES.md allows")
  end
end
