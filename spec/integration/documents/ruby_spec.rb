# frozen_string_literal: true

require_relative "../../spec_helper"

# The Ruby examples of README.md and docs/: each runs by itself, and gives the value behind `# =>`.
RSpec.describe "Ruby in README.md and docs/" do
  # A value that can be compared; other words behind the arrow only describe it.
  SHOWN = /# => (#<.*|\d.*|true\b.*)$/

  COLLECT = <<~'RUBY'
    require "json"
    def shown(words, value) = (STDERR.puts("SHOWN #{JSON.generate([words, value.inspect])}") || value)
  RUBY

  # Each line with its arrow, or before one, gives what it says to `shown`.
  def self.instrumented(code)
    lines = code.lines(chomp: true)
    lines.each_with_index.map do |line, i|
      words = line[SHOWN, 1] || (lines[i + 1].to_s.start_with?("# => ") && lines[i + 1][SHOWN, 1])
      next line if !words || line.start_with?(" ", "#")

      "shown(#{words.dump}, (#{line.sub(/\s+# .*/, '')}))"
    end.join("\n")
  end

  # An object whole; of another value the first word, for what follows explains it. Whether a page is kept by somebody
  # differs from run to run.
  def self.value(text)
    Documents.form(text[/\A#<.*>/m] || text[/\A[\w.]+/]).sub(/, held by .*(?=>)/m, "")
  end

  one_ruby requires: %w[memintro json]

  Documents.blocks("ruby").each do |block|
    it "#{block} runs: #{block.code.lines.first.chomp}" do
      reason = Documents.missing(block.code)
      skip reason if reason
      code = COLLECT + self.class.instrumented(block.code)
      Documents.workspace do |folder|
        code = "require 'sidekiq'; #{code}" if block.code.include?("Sidekiq")
        result = run_forked(code, chdir: folder).must_succeed
        answers = result.stderr.scan(/^SHOWN (.*)$/).flatten.map { |text| JSON.parse(text) }
        expect(answers.size).to eq(code.scan(/^shown\(/).size)
        answers.each do |words, given|
          expect(self.class.value(given)).to eq(self.class.value(words))
        end
      end
    end
  end

  it "compares values" do
    expect(Documents.blocks("ruby").sum { |block| block.code.scan(SHOWN).size }).to be >= 10
  end
end
