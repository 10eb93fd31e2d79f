# frozen_string_literal: true

module Memintro
  # Formats names of call sites for tables: printable, and no longer than needed to know the file. Unless it was cut,
  # the result is an end of the name, so that {Memintro.[]} finds the site by it.
  class Names
    # Longest name a table shows.
    WIDEST = 100
    # `/gems/` also ends the folders in which Debian and Bundler keep gems.
    GEM = %r{\A.*/(?:gems|bundler/gems)/(?=[^/]+-[^/]+/)}m
    # Ruby's own library, in any installation prefix.
    STANDARD = %r{\A.*/(?=ruby/(?:\d+\.\d+\.\d+|vendor_ruby|site_ruby)/)}m
    private_constant :GEM, :STANDARD

    # @param app_root [String, nil] folder whose files are shown relative to it; nil: the current one
    def initialize(app_root = nil)
      root = (app_root || current_folder).to_s
      @prefix = root.empty? ? nil : "#{root.chomp('/')}/".b
    end

    # @param site [CallSite]
    # @return [String] printable, at most {WIDEST} characters
    def short(site)
      name = site.name.b
      name = shorten(name) if site.kind == :ruby
      cut(self.class.printable(name))
    end

    # @param path [String]
    # @return [String, nil] the gem that the file belongs to, with its version; nil: it is of none
    def gem(path)
      rest = path.b.sub(GEM, "")
      self.class.utf8(rest[%r{\A[^/]+}]) if path.b.match?(GEM)
    end

    # @param path [String]
    # @return [Boolean] whether the file is part of Ruby
    def standard?(path)
      path.start_with?("<internal:") || path.b.match?(STANDARD)
    end

    # Characters that a terminal obeys, or that appear elsewhere than where they stand: C0, DEL and C1, marks that
    # turn the direction of writing, and line separators.
    UNPRINTABLE = /[\u0000-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/

    # @param text [String] in any encoding, valid or not
    # @return [String] UTF-8; bytes that are not, and what is {UNPRINTABLE}, as `\xNN`
    def self.printable(text)
      text = utf8(text)
      text.match?(UNPRINTABLE) ? text.gsub(UNPRINTABLE) { |control| hex(control) } : text
    end

    # The colours of {Style}, and every {UNPRINTABLE} character.
    COLOUR = /\e\[(?:0|1|2|33)m/
    DRESSED = Regexp.union(COLOUR, UNPRINTABLE)
    private_constant :COLOUR, :DRESSED

    # @param text [String] in any encoding, valid or not
    # @param colour [Boolean] whether the colours of reports may stay
    # @return [String] as {printable}, of several lines
    def self.lines(text, colour: false)
      utf8(text).gsub(colour ? DRESSED : UNPRINTABLE) { |found| found == "\n" || found.size > 1 ? found : hex(found) }
    end

    # @param text [String] JSON in UTF-8
    # @return [String] the same with all that is {UNPRINTABLE} but line breaks as `\uNNNN`; outside of strings JSON
    #   has no more than blanks of it
    def self.json(text)
      text.gsub(UNPRINTABLE) do |found|
        next found == "\n" ? found : " " if found.ord < 32

        format("\\u%04x", found.ord)
      end
    end

    # @param text [String] in any encoding, valid or not
    # @return [String] UTF-8; bytes that are not, as `\xNN`
    def self.utf8(text)
      text = text.dup.force_encoding(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
      text.valid_encoding? ? text : text.scrub { |bad| hex(bad) }
    end

    def self.hex(text)
      text.bytes.map { |byte| format("\\x%02X", byte) }.join
    end
    private_class_method :hex

    private

    def current_folder
      Dir.pwd
    rescue SystemCallError
      nil # it has been removed; a report must still be written
    end

    # Ruby's own internal files: the path is in brackets, the line after them.
    INTERNAL = /\A<internal:(.+)>(:\d+)\z/mn
    private_constant :INTERNAL

    def shorten(name)
      inner = name.match(INTERNAL)
      return "<internal:#{shorten(inner[1])}>#{inner[2]}" if inner
      return name.delete_prefix(@prefix) if @prefix && name.start_with?(@prefix) && !name.match?(GEM)

      name.match?(GEM) ? name.sub(GEM, "") : name.sub(STANDARD, "")
    end

    def cut(name)
      name.size > WIDEST ? "...#{name[(3 - WIDEST)..]}" : name
    end
  end
end
