# frozen_string_literal: true

module Memintro
  module Report
    # Call sites' names as a table shows them: printable, and no longer than needed to know the file. What is shown
    # is an end of the name wherever it has not been cut, so that {Memintro.[]} finds the site by it.
    class Names
      # Longest name a table shows.
      WIDEST = 100
      # `/gems/` also ends the folders in which Debian and Bundler keep gems.
      GEM = %r{\A.*/(?:gems|bundler/gems)/(?=[^/]+-[^/]+/)}m
      # Ruby's own library, in any prefix.
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

      # @param name [String] a path, with a line or without
      # @return [String] printable, at most {WIDEST} characters
      def shortened(name)
        cut(self.class.printable(shorten(name.b)))
      end

      # @param text [String] in any encoding, valid or not
      # @return [String] UTF-8; bytes that are not, and control characters, as `\xNN`
      def self.printable(text)
        text = utf8(text)
        text.match?(/[[:cntrl:]]/) ? text.gsub(/[[:cntrl:]]/) { |control| hex(control) } : text
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

      # What Ruby itself is written in: the path is in brackets, the line after them.
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
end
