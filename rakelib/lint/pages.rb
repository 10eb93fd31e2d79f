# frozen_string_literal: true

# Checks the shape of README.md and the other Markdown pages: length, width of prose, and size of table cells.
class PageShape
  # Most lines of a page, by pattern; the first one that matches counts.
  LONGEST = { "README.md" => 199, "CHANGELOG.md" => 36, "docs/**/*.md" => 120 }.freeze
  # Pages whose prose and tables are checked.
  PAGES = ["*.md", "docs/**/*.md", "examples/**/*.md"].freeze
  WIDEST = 100
  MOST_WORDS = 15
  # Pages whose tables define words or routes, and may have longer cells.
  LONG_CELLS = ["RULES.md", "CONTRIBUTING.md"].freeze

  # @param root [String] folder of the checkout
  def initialize(root)
    @root = File.expand_path(root)
  end

  # @return [Integer] number of pages
  def size = pages.size

  # @return [Array<String>] what is wrong, with file and line; empty: nothing
  def wrong = pages.flat_map { |page| [*length(page), *lines(page)] }

  private

  def pages
    @pages ||= Dir.glob(PAGES, base: @root).sort
  end

  def text(page) = File.readlines(File.join(@root, page), chomp: true, encoding: "UTF-8")

  def length(page)
    longest = LONGEST.find { |pattern, _| File.fnmatch?(pattern, page, File::FNM_PATHNAME) }&.last
    size = text(page).size
    longest && size > longest ? ["#{page}: #{size} lines; at most #{longest} may be"] : []
  end

  # Code blocks may be as wide as what was printed.
  def lines(page)
    code = false
    text(page).each.with_index(1).flat_map do |line, number|
      code = !code if line.lstrip.start_with?("```")
      next [] if code || line.lstrip.start_with?("```")

      line.lstrip.start_with?("|") ? cells(page, line, number) : width(page, line, number)
    end
  end

  # A link cannot be wrapped; a line that is one word wider is as narrow as it can be.
  def width(page, line, number)
    return [] if line.size <= WIDEST || line.strip.match?(/\A(?:[-*] )?\S+\z/)

    ["#{page}:#{number}: #{line.size} columns; wrap prose at #{WIDEST}"]
  end

  def cells(page, line, number)
    return [] if LONG_CELLS.include?(page)

    line.gsub(/`[^`]*`/, "").gsub("\\|", "").split("|").map { |cell| words(cell) }.select { |n| n > MOST_WORDS }
        .map { |n| "#{page}:#{number}: a cell of #{n} words; at most #{MOST_WORDS} may be" }
  end

  # Addresses of links do not count, and neither does code: a list of names may be long.
  def words(cell) = cell.gsub(/\]\([^)]*\)/, "]").scan(/[[:alnum:]][^\s]*/).size
end
