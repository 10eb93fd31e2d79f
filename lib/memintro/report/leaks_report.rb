# frozen_string_literal: true

require_relative "../malloc/leaks"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"

module Memintro
  # Leaked blocks as text, JSON or a page of its own: what `memintro leaks` prints.
  # @api private
  class LeaksReport
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze
    # Headings of the tables of a page.
    TITLES = { leaked: "Leaked: nothing points to them", indirectly_leaked: "Indirectly leaked: only leaked ones do",
               undecided: "Undecided", anchored: "Held: something points to them",
               free_but_kept: "Free, but kept by malloc" }.freeze
    private_constant :TITLES

    # @param leaks [Leaks]
    # @param name [String, nil] of the process, for a heading
    # @param pid [Integer, nil]
    def initialize(leaks, name: nil, pid: nil)
      @leaks = leaks
      @name = name
      @pid = pid
    end

    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] groups of each verdict; nil: all
    # @return [nil]
    def write(io, format: :text, top: nil)
      io.write(case format
               when :json then json(top)
               when :html then html(top)
               else text(Style.for(io), top)
               end)
      nil
    end

    private

    def chosen(top)
      @leaks.by_weight.flat_map do |verdict|
        rows = @leaks.groups.select { |group| group.verdict == verdict }
        top ? rows.first(top) : rows
      end
    end

    def json(top)
      head = { memintro_leaks: Leaks::LAYOUT, pid: @pid }.compact
      JsonText.dump({ **head, **@leaks.to_h, groups: chosen(top).map(&:to_h) }) << "\n"
    end

    def text(style, top)
      first, *rest = @leaks.verdict
      summary = @leaks.summary(top: top)
      notes = @leaks.notes.map { |note| "Note: #{note}." }
      lines = [style.bold(Names.printable(first)), *rest.map { |line| Names.printable(line) }, "", summary,
               *("" unless notes.empty?), *notes.map { |note| Names.printable(note) }, "", facts]
      lines.join("\n") << "\n"
    end

    def facts
      looked = "#{Units.counted(@leaks.scanned_blocks, 'block')} (#{Units.bytes(@leaks.scanned_bytes)}) looked at, " \
               "#{Units.bytes(@leaks.searched_bytes)} searched in #{@leaks.search_ms} ms in "
      return "#{looked}a core file" if @leaks.copies.zero?

      "#{looked}#{@leaks.copies == 1 ? 'a copy' : "#{@leaks.copies} copies"} of the process, " \
        "which stood still for #{@leaks.pause_ms} ms"
    end

    def html(top)
      tables = chosen(top).group_by(&:verdict).map { |verdict, rows| table(verdict, rows) }
      title = "Leaks of #{@name || "process #{@pid || Process.pid}"}"
      Native.page(title, [facts], @leaks.verdict, @leaks.notes, tables, nil)
    end

    def table(verdict, rows)
      cells = rows.map do |row|
        size = row.size ? Units.count(row.size) : ""
        ages = row.oldest ? [row.youngest, row.oldest].uniq.join(" to ") : ""
        name = row.site || (verdict == :free_but_kept ? "" : "(not tracked)")
        more = [row.holders && "held by #{row.holders}", row.first_words && "begins with #{row.first_words.join(', ')}"]
        [Units.bytes(row.bytes), Units.count(row.count), size, ages, [name, *more.compact].join("; ")]
      end
      [TITLES.fetch(verdict), ["bytes", "blocks", "size", "age in GCs", "call site"], cells]
    end
  end
end
