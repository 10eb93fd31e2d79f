# frozen_string_literal: true

require "cgi"
require "json"
require "open3"
require_relative "binaries"

module Native
  # The licenses of all code that is linked into the compiled parts and that is not memintro's own: the crates that
  # cargo links, the fonts in them, and Rust's standard library with its own crates. Most of these licenses ask that
  # their text goes along with the binary. Equal texts are printed once. The result depends only on Cargo.lock and on
  # Rust's version. cargo-about lists crates alone: not the fonts in them, nor the standard library and its crates.
  class Licenses
    # Name of the file in the gem.
    FILE = "THIRD_PARTY_LICENSES"
    # The crates whose products are in the gem.
    CRATES = %w[memintro memintro-hook memintro-tool].freeze
    TARGET = "x86_64-unknown-linux-gnu"
    # Files with such names are license texts, wherever they are in a crate: a font has its own beside it.
    TEXTS = %r{(\A|/)(licen[cs]e|copying|copyright|notice|unlicense|ofl)[^/]*\z}i
    # The licenses of files in the source tree of Rust's standard library.
    STANDARD = %w[Apache-2.0 MIT BSD-2-Clause Unicode-3.0].freeze
    # Paths of sources that Rust leaves in debug information: of a crate of ours, in a registry's folder or mapped to
    # /crates, and of a crate of the standard library.
    SOURCES = %r{/(?:registry/src/[^/\0]+|crates|rust/deps)/([A-Za-z0-9_-]+?-\d+\.\d+\.\d+(?:[-+][A-Za-z0-9.+-]*)?)/}n
    # Between two texts.
    RULE = ("-" * 100).freeze

    # Something that is linked: its name and version, what its author says of its license, and the texts.
    Entry = Struct.new(:name, :license, :texts)

    # @param files [Array<String>] compiled files or debug files with paths of sources in them
    # @return [Array<String>] names and versions of the crates that were compiled into them
    def self.crates_in(files)
      files.flat_map { |file| File.binread(file).scan(SOURCES).flatten }.uniq.sort
    end

    # @param root [String] folder that holds Cargo.toml and Cargo.lock. The crates must have been fetched.
    def initialize(root)
      @manifest = ["--manifest-path", File.join(root, "Cargo.toml"), "--locked", "--offline"]
    end

    # @return [Array<Entry>] by name
    # @raise [Failed] if something has no text
    def entries
      @entries ||= (crates + standard_library).sort_by(&:name).each do |entry|
        raise Failed, "#{entry.name} (#{entry.license}) has no license text" if entry.texts.empty?
      end
    end

    # @return [String] the file
    def text
      texts = entries.flat_map(&:texts).uniq
      list = entries.map do |entry|
        "#{entry.name}: #{entry.license}; #{entry.texts.map { |text| "text #{texts.index(text) + 1}" }.join(', ')}\n"
      end
      "The compiled parts of memintro contain code of others: the crates and libraries of this list, under the\n" \
        "licenses whose texts follow it.\n\n#{list.join}" +
        texts.each_with_index.map { |text, i| "\n#{RULE}\ntext #{i + 1}\n#{RULE}\n\n#{text}" }.join
    end

    private

    # What cargo links: no crates that run only while it compiles, such as macros.
    def crates
      known = packages
      linked.map do |name|
        package = known.fetch(name)
        Entry.new(name, package["license"] || "see the texts", texts_in(File.dirname(package["manifest_path"])))
      end
    end

    def linked
      tree = cargo("tree", *CRATES.flat_map { |name| ["--package", name] }, "--edges", "normal,no-proc-macro",
                   "--target", TARGET, "--prefix", "none", "--format", "{p}")
      # Crates of this workspace have a path after the version.
      tree.lines.map { |line| line.sub("(*)", "").strip }.grep(/\A\S+ v\S+\z/).map { |line| line.sub(" v", "-") }.uniq
    end

    def packages
      found = JSON.parse(cargo("metadata", "--format-version", "1", "--filter-platform", TARGET)).fetch("packages")
      found.to_h { |package| ["#{package['name']}-#{package['version']}", package] }
    end

    def texts_in(folder)
      names = Dir.glob("**/*", base: folder).grep(TEXTS).sort
      names.map { |name| File.join(folder, name) }.select { |file| File.file?(file) }
           .map { |file| tidy(File.read(file, encoding: "UTF-8")) }.uniq
    end

    # Rust tells in a page of its own which licenses its standard library has, and the texts of its crates. The page
    # forgets some crates; the compiler's page has another version of these.
    def standard_library
      sysroot = output("rustc", "--print", "sysroot").strip
      folder = File.join(sysroot, "share/doc/rust")
      own, *sections = sections(File.join(folder, "COPYRIGHT-library.html"))
      sections += sections(File.join(folder, "COPYRIGHT.html")).drop(1).reverse
      standard = STANDARD.to_h { |name| [name, tidy(File.read(File.join(folder, "licenses/#{name}.txt")))] }
      version = output("rustc", "--version")[/\d+\.\d+\.\d+\S*/]
      linked = self.class.crates_in(Dir[File.join(sysroot, "lib/rustlib", TARGET, "lib/*.rlib")])
      [Entry.new("Rust's standard library #{version}", "see the first text", [tidy(plain(own)), *standard.values]),
       *linked.map { |crate| standard_crate(crate, sections, standard) }]
    rescue SystemCallError => e
      raise Failed, "this Rust does not say which licenses its standard library has: #{e.message}"
    end

    def sections(page)
      File.read(page, encoding: "UTF-8").split(%r{(?=<h3>[^<]*</h3>)})
    end

    def standard_crate(crate, sections, standard)
      html = [crate, crate[/\A(.*)-\d+\.\d+\.\d+/, 1]].filter_map do |name|
        sections.find { |section| section.match?(%r{\A<h3>\W*#{Regexp.escape(name)}(-\d[^<]*)?</h3>}) }
      end.first
      raise Failed, "this Rust does not say which license #{crate} of its standard library has" unless html

      said = %w[License Authors].map { |what| plain(html[%r{#{what}:</b>(.*?)</p>}m, 1].to_s).split.join(" ") }
      texts = html.scan(%r{<pre>\n?(.*?)</pre>}m).flatten.map { |text| tidy(CGI.unescapeHTML(text)) }
      texts = standard.values_at(*said.first.scan(/[\w.-]+/)).compact if texts.empty?
      Entry.new("#{crate} (in Rust's standard library)", said.reject(&:empty?).join(", by "), texts.uniq)
    end

    def plain(html)
      CGI.unescapeHTML(html.gsub(/<[^>]*>/, "")).gsub(/^[ \t]+/, "").gsub(/\n{3,}/, "\n\n")
    end

    def tidy(text)
      "#{text.scrub.gsub(/\r\n?/, "\n").gsub(/[ \t]+$/, '').sub(/\A\n+/, '').rstrip}\n"
    end

    def cargo(*arguments)
      output("cargo", *arguments, *@manifest)
    end

    def output(*command)
      text, problems, status = Open3.capture3(*command)
      raise Failed, "#{command.first(2).join(' ')} failed: #{problems}" unless status.success?

      text
    end
  end
end
