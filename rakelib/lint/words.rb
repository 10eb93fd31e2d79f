# frozen_string_literal: true

# Finds words that the glossary of RULES.md forbids (its column "not") in README.md, docs, lib, crates and ext.
class ForbiddenWords
  # Files that are searched.
  FILES = ["README.md", "docs/**/*.md", "{lib,ext}/**/*.rb", "{crates,ext}/**/*.rs"].freeze
  # Forbidden words and what finds them without a false alarm: where a word has another meaning in other contexts, the
  # pattern has the context. A space in a pattern also matches a line break, and the comment sign of the next line.
  PATTERNS = {
    "chunk" => /\bmemory chunks?\b|\bchunks? of memory\b/i,
    "malloc count" => /\bmalloc counts?\b/i,
    "used" => /\bused (?:bytes|blocks)\b/i,
    "active" => /\bactive (?:bytes|blocks)\b/i,
    "retained" => /\bretained blocks\b/i,
    "memory usage" => /\bmemory usage\b/i,
    "location" => /\ballocation locations?\b/i,
    "origin" => /\ballocation origins?\b/i,
    "stack" => /\ballocation stacks?\b/i,
    "type" => /\bcall site types?\b|\btypes? of (?:a |the )?call sites?\b/i,
    "checkpoint" => /\bcheckpoints?\b/i,
    "lite mode" => /\blite mode\b/i,
    "approximation" => /\bapproximat(?:ions?|ely)\b/i,
    "margin" => /\bmargins? of error\b|\berror margins?\b/i,
    "confidence interval" => /\bconfidence intervals?\b/i,
    "bytecode" => /\bbyte-?codes?\b/i,
    "hidden object" => /\bhidden objects?\b/i,
    "agent" => /(?<!user.)\bagents?\b/i,
    "shim" => /\bshims?\b/i,
    "malloc library" => /\bmalloc librar(?:y|ies)\b/i,
    "GOT entry" => /\bGOT entr(?:y|ies)\b/,
    "attached" => /\battached\b/i,
    "injected" => /\binjected\b/i,
    "registry" => /\bregistr(?:y|ies)\b/i,
    "lost" => /\blost frees?\b/i,
    "missed" => /\bmissed (?:allocations?|events?)\b/i,
    "picture" => /\bpictures?\b/i,
    "chart" => /\bcharts\b|\b(?:a|the) chart\b/i,
    # Not after the quote of a lifetime in Rust.
    "graph" => /(?<!')\b(?:a|the) graphs?\b/i,
    "control table" => /\bcontrol tables?\b/i,
    "wrapper" => /\bmalloc wrappers?\b/i,
    "trampoline" => /\btrampolines?\b/i,
    "standstill" => /\bstand-?stills?\b/i
  }.freeze
  # Forbidden words that a pattern cannot distinguish from an allowed use: most of them are the word of another entry,
  # or a word of Ruby, ELF or plain English.
  UNCHECKED = ["delta", "dump", "event", "leak", "live", "log", "line", "map", "mark", "method", "minutes", "object",
               "period", "PLT", "preload", "probe", "range", "report", "section", "server", "slot", "snapshot",
               "usable size"].freeze
  # The pattern that a space stands for.
  GAP = %q{(?:[ \t]|\n[ \t]*(?:#|//[/!]?)?[ \t]*)+}
  private_constant :GAP

  # @param root [String] folder of the checkout
  def initialize(root)
    @root = File.expand_path(root)
    @glossary = read_glossary
  end

  # @return [Array<String>] paths of the files that are searched
  def files
    @files ||= Dir.glob(FILES, base: @root).sort.reject { |path| path.include?("/target/") }
  end

  # @return [Array<String>] what is wrong, with file and line; empty: nothing
  def wrong
    undecided + files.flat_map { |path| found_in(path) }
  end

  private

  # @return [Hash{String => Array<String>}] each forbidden word, and the words to use instead
  def read_glossary
    rows = File.readlines(File.join(@root, "RULES.md"), encoding: "UTF-8").map { |line| line.split("|").map(&:strip) }
    rows.each_with_object(Hash.new { |hash, word| hash[word] = [] }) do |(_, words, _, forbidden), found|
      next unless words.to_s.start_with?("**")

      forbidden.to_s.split(", ").each { |word| found[word].concat(words.scan(/\*\*(.+?)\*\*/).flatten) }
    end
  end

  # The lists above and the glossary must name the same words.
  def undecided
    listed = PATTERNS.keys + UNCHECKED
    [*(@glossary.keys - listed).map { |word|
       "rakelib/lint/words.rb does not list #{word.inspect}, which RULES.md forbids"
     },
     *(listed - @glossary.keys).map { |word| "rakelib/lint/words.rb lists #{word.inspect}, which RULES.md allows" }]
  end

  def found_in(path)
    text = File.read(File.join(@root, path), encoding: "UTF-8").scrub("?")
    hits = patterns.flat_map do |word, pattern|
      text.to_enum(:scan, pattern).map { [text[0...Regexp.last_match.begin(0)].count("\n") + 1, word] }
    end
    hits.sort.map { |line, word| "#{path}:#{line}: #{word.inspect}: say #{@glossary[word].uniq.join(' or ')}" }
  end

  def patterns
    @patterns ||= PATTERNS.transform_values { |pattern| Regexp.new(pattern.source.gsub(" ") { GAP }, pattern.options) }
  end
end
