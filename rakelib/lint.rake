# frozen_string_literal: true

# Checks that do not run the code. `rake lint` runs all of them.

require "json"
require "open3"
require_relative "lint/pages"
require_relative "lint/ruby_layers"
require_relative "lint/rust_circles"
require_relative "lint/words"

# The allowed dependencies between the workspace's crates; RULES.md says why. A crate that is not listed is refused.
ALLOWED_DEPENDENCIES = {
  "memintro-abi" => [],
  "memintro-elf" => [],
  "memintro-tracker" => %w[memintro-abi],
  "memintro-bench" => %w[memintro-tracker],
  "memintro-analysis" => %w[memintro-abi],
  "memintro-core-file" => %w[memintro-abi memintro-analysis],
  "memintro-hook" => %w[memintro-abi memintro-elf memintro-tracker],
  "memintro-heap" => %w[memintro-analysis],
  "memintro-native" => %w[memintro-abi],
  "memintro-tool" => %w[memintro-analysis memintro-core-file memintro-heap],
  "memintro" => %w[memintro-abi memintro-analysis memintro-native]
}.freeze
RUBY_BINDINGS = %w[rb-sys magnus].freeze
# What only the benchmarks may need, in tests either: everything that is tested would wait until it is compiled.
OF_BENCHMARKS = "criterion"
# Most files of a crate that may use each other in a circle.
LARGEST_CIRCLE = 3

# Ends the task if there are errors, and prints each in a line of its own.
def refuse(title, wrong)
  abort "#{title}:\n#{wrong.map { |line| "  #{line}" }.join("\n")}" if wrong.any?
end

desc "Run every lint"
task lint: %w[lint:rustfmt lint:clippy lint:clippy_benches lint:rustdoc lint:deny lint:layers lint:words lint:pages
              lint:rubocop lint:yard lint:rbs]

namespace :lint do
  desc "Rust formatting"
  task :rustfmt do
    sh "cargo", "fmt", "--all", "--check"
  end

  # By the profile of `rake compile`, which has compiled the procedural macros and build scripts already.
  clippy = lambda do |*packages|
    cargo "clippy", "--release", "--locked", *packages, "--all-targets", "--quiet", "--", "-D", "warnings"
  end

  desc "Rust lints, warnings denied, of all but the benchmarks"
  task(:clippy) { clippy["--workspace", "--exclude", "memintro-bench"] }

  desc "Rust lints of the benchmarks, which need criterion"
  task(:clippy_benches) { clippy["--package", "memintro-bench"] }

  desc "Rust documentation, warnings denied"
  task :rustdoc do
    # With private items, because the crates are read by people who change them, and only they follow such links.
    cargo "doc", "--release", "--locked", "--workspace", "--no-deps", "--document-private-items", "--quiet",
          RUSTDOCFLAGS: "-D warnings -A rustdoc::private_intra_doc_links"
  end

  desc "Licenses of the crates, and that none is there twice (deny.toml; where cargo-deny is installed)"
  task :deny do
    if system("cargo", "deny", "--version", out: File::NULL, err: File::NULL)
      # The list of known vulnerabilities has to be fetched, and a lint must not need the network.
      sh "cargo", "deny", "--offline", "--locked", "check",
         "--deny", "unnecessary-skip", "--deny", "unmatched-skip", "licenses", "bans"
    else
      puts "no cargo-deny here: skipped (cargo install cargo-deny --locked; `bin/test --all` does so)"
    end
  end

  desc "Nothing depends on what is above it: neither crates, nor their files, nor the folders of lib/memintro"
  task layers: %w[lint:crate_layers lint:rust_circles lint:ruby_layers]

  desc "No folder of lib/memintro uses one that is above it"
  task :ruby_layers do
    layers = RubyLayers.new("lib")
    refuse("Wrong direction (see RULES.md)", layers.wrong)
    puts "#{layers.size} Ruby files use only folders below their own"
  end

  desc "No more than a few files of a crate use each other in a circle"
  task :rust_circles do
    folders = %w[crates ext].map { |folder| RustCircles.new(folder) }
    wrong = folders.flat_map(&:circles).select { |files| files.size > LARGEST_CIRCLE }
    refuse("Files that use each other in a circle (at most #{LARGEST_CIRCLE} may)",
           wrong.map { |files| "#{files.size} files: #{files.join(" ")}" })
    puts "#{folders.sum(&:size)} Rust files, of which at most #{LARGEST_CIRCLE} use each other in a circle"
  end

  desc "No crate depends on one that is above it; only the extension is linked against Ruby"
  task :crate_layers do
    packages = JSON.parse(IO.popen(%w[cargo metadata --locked --no-deps --format-version 1], &:read)).fetch("packages")
    names = packages.map { |package| package.fetch("name") }
    wrong = packages.flat_map do |package|
      name = package.fetch("name")
      used = package.fetch("dependencies").reject { |d| d["kind"] == "dev" }.map { |d| d.fetch("name") } & names
      (used - ALLOWED_DEPENDENCIES.fetch(name, [])).map { |other| "#{name} depends on #{other}" }
    end
    (names - ["memintro"]).each do |name|
      tree = IO.popen(["cargo", "tree", "--locked", "--package", name, "--prefix", "none", "--format", "{p}"], &:read)
      abort "cargo tree failed for #{name}" unless $?.success?
      (tree.lines.map { |line| line.split.first }.uniq & RUBY_BINDINGS).each do |binding_crate|
        wrong << "#{name} depends on #{binding_crate}"
      end
    end
    tested = IO.popen(%w[cargo tree --locked --workspace --exclude memintro-bench --edges all --prefix none
                         --format {p}], &:read)
    abort "cargo tree failed" unless $?.success?
    wrong << "#{OF_BENCHMARKS} is compiled for tests" if tested.match?(/^#{OF_BENCHMARKS} /)
    refuse("Wrong direction (see RULES.md)", wrong)
    puts "#{names.size} crates depend only on those below them; Ruby is known to the extension alone"
  end

  desc "No file uses a word that the glossary of RULES.md forbids"
  task :words do
    words = ForbiddenWords.new(".")
    refuse("Forbidden words (see RULES.md)", words.wrong)
    puts "#{words.files.size} files use no word that RULES.md forbids"
  end

  desc "No page is too long, no prose too wide, and no table cell too wordy"
  task :pages do
    pages = PageShape.new(".")
    refuse("Shape of pages (see RULES.md)", pages.wrong)
    puts "#{pages.pages.size} pages are short and narrow"
  end

  desc "Ruby lints"
  task :rubocop do
    # Unchanged files are not checked again; the others are checked on all processors.
    sh "rubocop", "--format", "simple", "--cache-root", "tmp/rubocop", "--parallel"
  end

  desc "Every public Ruby method is documented, and YARD has nothing to warn of"
  task :yard do
    output, status = Open3.capture2e("yard", "stats", "--list-undoc", "--no-cache", "--no-save")
    puts output
    abort "yard failed" unless status.success?
    abort "YARD warns: see above" if output.include?("[warn]")
    abort "Some public objects have no documentation: see above" unless output.include?("100.00% documented")
  end

  desc "The signatures in sig/ agree with each other (where rbs is installed)"
  task :rbs do
    program = ["rbs", "rbs#{RUBY_VERSION[/\A\d+\.\d+/]}"].find do |name|
      system(name, "--version", out: File::NULL, err: File::NULL)
    end
    if program
      sh program, "-r", "bigdecimal", "-r", "pathname", "-I", "sig", "validate", "--silent"
    else
      puts "no rbs here: skipped (Debian 13's Rubies have it; `rake matrix` runs it there)"
    end
  end
end
