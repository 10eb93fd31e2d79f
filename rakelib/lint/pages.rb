# frozen_string_literal: true

# Checks the shape of Markdown pages: their length, the width of prose, and the words in cells of tables.
class PageShape
  # Pages that are checked.
  PAGES = ["*.md", "docs/**/*.md", "examples/**/*.md"].freeze
  # Most lines of a page, by pattern.
  MOST_LINES = { "README.md" => 199, "CHANGELOG.md" => 36, "docs/**/*.md" => 120 }.freeze
  MOST_COLUMNS = 100
  MOST_WORDS = 15
  # Pages whose tables define words or say where tests go.
  LONG_CELLS = ["RULES.md", "CONTRIBUTING.md"].freeze

  # @param root [String] folder of the checkout
  def initialize(root)
    @root = File.expand_path(root)
  end

  # @return [Array<String>] paths of the pages
  def pages
    @pages ||= Dir.glob(PAGES, base: @root).sort
  end

  # @return [Array<String>] what is wrong, with file and line; empty: nothing
  def wrong
    pages.flat_map do |page|
      lines = File.readlines(File.join(@root, page), chomp: true, encoding: "UTF-8")
      [*length(page, lines.size), *outside_of_code(lines).flat_map { |line, number| shape(page, line, number) }]
    end
  end

  private

  def length(page, lines)
    most = MOST_LINES.find { |pattern, _| File.fnmatch?(pattern, page, File::FNM_PATHNAME) }&.last
    most && lines > most ? ["#{page}: #{lines} lines; split it by task or shorten it to #{most}"] : []
  end

  # Examples are as wide as what was printed.
  def outside_of_code(lines)
    code = false
    lines.each.with_index(1).reject do |line, _|
      fence = line.lstrip.start_with?("```")
      code = !code if fence
      fence || code
    end
  end

  def shape(page, line, number)
    return cells(page, line, number) if line.lstrip.start_with?("|")
    # A long address cannot be wrapped.
    return [] if line.size <= MOST_COLUMNS || line.strip.match?(/\A(?:[-*] )?\S+\z/)

    ["#{page}:#{number}: #{line.size} columns; wrap prose at #{MOST_COLUMNS}"]
  end

  def cells(page, line, number)
    return [] if LONG_CELLS.include?(page)

    longest = line.gsub(/`[^`]*`/, "").gsub("\\|", "").split("|").map { |cell| words(cell) }.max.to_i
    return [] if longest <= MOST_WORDS

    ["#{page}:#{number}: a cell of #{longest} words; use #{MOST_WORDS}, or a sentence below"]
  end

  # Code and the addresses of links do not count.
  def words(cell) = cell.gsub(/\]\([^)]*\)/, "]").scan(/[[:alnum:]]\S*/).size
end
