# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../../lib/memintro/support/settings"

# README.md and docs/ as pages: every example is run or has a reason not to be, every link leads somewhere.
RSpec.describe "README.md and docs/ as pages" do
  readme = Documents::PAGES.fetch("README.md")
  commands = Documents::BLOCKS.flat_map { |block| %w[console sh].include?(block.language) ? block.commands : [] }

  # Link targets of a file: GitHub's names of its headings.
  def anchors(path)
    text = File.read(File.join(Subprocess::ROOT, path), encoding: "UTF-8").gsub(/^```.*?^```$/m, "")
    text.scan(/^#+ (.*)$/).flatten.map do |heading|
      heading.gsub(/\[(.*?)\]\(.*?\)/, '\1').downcase.gsub(/[^[:alnum:] _-]/, "").tr(" ", "-")
    end
  end

  it "have examples in no language that no spec knows" do
    # Those with a file's name: rack_spec.rb, rails_spec.rb, testing_spec.rb,
    # mem_check_spec.rb. Without a language: lines and pictures.
    files = ["ruby config.ru", "ruby config/application.rb", "ruby spec/parser_spec.rb", "ruby test/parser_test.rb",
             "ruby Rakefile"]
    known = ["console", "ruby", *files, "json", ""]
    expect(Documents::BLOCKS.map(&:language).uniq).to match_array(known)
    expect(Documents.blocks("console").reject { |block| block.code.start_with?("$ ") }).to eq([])
  end

  it "have commands; each is run or has a reason not to be" do
    reasons = { **Documents::NOT_TYPED, **Documents::TYPED_BY }
    typed = commands.reject { |command| Documents.elsewhere?(command.text) }
    expect(typed.map(&:text)).to include(start_with("memintro doctor"), start_with("memintro run"))
    unused = reasons.keys.reject { |pattern| commands.any? { |command| command.text.match?(pattern) } }
    expect(unused).to eq([])
    specs = Documents::TYPED_BY.values.map { |name| File.join(Subprocess::ROOT, "spec", "integration", name) }
    expect(specs).to all(satisfy { |file| File.exist?(file) })
  end

  it "lead somewhere by each link, to the heading that it names" do
    root = Subprocess::ROOT
    wanted = Dir.chdir(root) { ["README.md", "RULES.md", "CONTRIBUTING.md", *Dir["{docs,examples}/**/*.md"]] }
    links = wanted.flat_map do |page|
      text = File.read(File.join(root, page), encoding: "UTF-8")
      text.scan(/\]\(((?!https?:)[^)\s]*)\)/).flatten.map { |link| [page, link] }
    end
    expect(links).to include(["README.md", "docs/README.md"], ["CONTRIBUTING.md", "RULES.md"])
    lost = links.reject do |page, link|
      file, anchor = link.split("#", 2)
      path = file.empty? ? page : File.join(File.dirname(page), file)
      File.exist?(File.join(root, path)) && (anchor.nil? || anchors(path).include?(anchor))
    end
    expect(lost).to eq([])
  end

  it "are named by the code only where they are" do
    sources = Dir.chdir(Subprocess::ROOT) { Dir["{lib,ext,crates,spec,bench,rakelib}/**/*.{rb,rs,rake}", "*.md"] }
    named = sources.flat_map do |source|
      text = File.read(File.join(Subprocess::ROOT, source), encoding: "UTF-8")
      text.scan(%r{\bdocs/[\w/]+\.md}).map { |page| [source, page] }
    end
    expect(named).to include(["spec/integration/storm_spec.rb", "docs/design/waiting.md"])
    expect(named.reject { |_, page| Documents::PAGES.key?(page) }).to eq([])
  end

  it "name files and folders that exist, with RULES.md and CONTRIBUTING.md" do
    root = Subprocess::ROOT
    pages = ["README.md", "RULES.md", "CONTRIBUTING.md", *Dir.chdir(root) { Dir["docs/**/*.md"] }]
    named = pages.flat_map do |page|
      File.read(File.join(root, page), encoding: "UTF-8")
          .scan(%r{`((?:bench|bin|crates|docs|examples|exe|ext|lib|rakelib|sig|spec)/[^`\s<>]*)`}).flatten
          .map { |path| [page, path] }
    end
    expect(named).to include(%w[CONTRIBUTING.md crates/tracker/src/counters.rs], %w[RULES.md crates/abi])
    expect(named.reject { |_, path| Dir[File.join(root, path)].any? }).to eq([])
  end

  it "name the files of ten typical changes" do
    contributing = File.read(File.join(Subprocess::ROOT, "CONTRIBUTING.md"), encoding: "UTF-8")
    chapter = contributing[/^## Ten typical changes$.*?(?=^## )/m]
    changes = chapter.split(/^### \d+\. /).drop(1)
    expect(changes.size).to eq(10)
    expect(changes.map { |change| change.scan(%r{`[a-z]+/[^`]+\.(?:rb|rs|rbs|h|yml|cc)`}).size }).to all(be >= 2)
  end

  it "are all in the index" do
    index = Documents::PAGES.fetch("docs/README.md")
    missing = (Documents::PAGES.keys - ["README.md", "docs/README.md"]).reject do |page|
      index.include?("](#{page.delete_prefix("docs/")})")
    end
    expect(missing).to eq([])
  end

  it "tell the first things on one short page" do
    expect(readme.lines.size).to be <= 200
    expect(readme).to include("](docs/README.md)")
  end

  it "list every variable with its flag" do
    page = Documents::PAGES.fetch("docs/settings.md")
    Memintro::Settings::ALL.each do |setting|
      expect(page).to include("| `#{setting.variable}` | `#{setting.flag}` |")
    end
    sources = Dir[File.join(Subprocess::LIB, "**", "*.rb")].map { |file| File.read(file, encoding: "UTF-8") }.join
    # By these, processes of one run tell each other what users do not set; the hook's path is for specs.
    internal = /\AMEMINTRO_(?:HOOK|FIRST_PID|REPORT_HOLDER|RUBIES|SINCE|LAUNCHED_|CHECK_)/
    variables = sources.scan(/"(MEMINTRO_[A-Z_]+)"/).flatten.uniq.grep_v(internal)
    expect(variables).to include("MEMINTRO_DISABLE")
    expect(variables.reject { |name| page.include?("| `#{name}` |") }).to eq([])
  end
end
