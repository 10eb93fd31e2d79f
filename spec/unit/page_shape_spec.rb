# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/lint/pages"

# `rake lint:pages` refuses pages that are too long, too wide or too wordy.
RSpec.describe PageShape do
  def wrong_with(path, text)
    Dir.mktmpdir do |folder|
      FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
      File.write(File.join(folder, path), text)
      described_class.new(folder).wrong
    end
  end

  it "finds nothing wrong in the pages of this checkout" do
    shape = described_class.new(File.expand_path("../..", __dir__))
    expect(shape.wrong).to eq([])
    expect(shape.pages).to include("README.md", "docs/heap.md", "docs/design/table.md")
  end

  { "README.md" => 199, "CHANGELOG.md" => 36, "docs/heap.md" => 120, "docs/design/table.md" => 120 }
    .each do |page, lines|
    it "allows #{lines} lines in #{page}" do
      expect(wrong_with(page, "a line\n" * lines)).to eq([])
      expect(wrong_with(page, "a line\n" * (lines + 1)))
        .to eq(["#{page}: #{lines + 1} lines; split it by task or shorten it to #{lines}"])
    end
  end

  it "allows any length of pages that are no documentation" do
    expect(wrong_with("RULES.md", "a line\n" * 500)).to eq([])
  end

  it "allows 100 columns of prose" do
    expect(wrong_with("docs/heap.md", "#{"word " * 20}\n")).to eq([])
    expect(wrong_with("docs/heap.md", "First\n\n#{"word " * 20}x\n"))
      .to eq(["docs/heap.md:3: 101 columns; wrap prose at 100"])
  end

  it "allows any width of examples, and of a word that cannot be wrapped" do
    expect(wrong_with("docs/heap.md", "```\n#{"word " * 40}\n```\n- #{"x" * 150}\n")).to eq([])
    expect(wrong_with("docs/heap.md", "```\ncode\n```\n#{"word " * 40}\n").size).to eq(1)
  end

  it "allows 15 words in a cell, beside code and addresses" do
    fifteen = ("word " * 14) + "[word](a/page.md)"
    expect(wrong_with("docs/heap.md", "| #{fifteen} `code a\\|b` | #{fifteen} |\n")).to eq([])
    expect(wrong_with("docs/heap.md", "| one | #{fifteen} more |\n"))
      .to eq(["docs/heap.md:1: a cell of 16 words; use 15, or a sentence below"])
  end
end
