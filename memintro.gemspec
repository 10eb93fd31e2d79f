# frozen_string_literal: true

require_relative "lib/memintro/version"

Gem::Specification.new do |spec|
  spec.name = "memintro"
  spec.version = Memintro::VERSION
  spec.authors = ["The memintro authors"]
  spec.summary = "Finds the line that owns the memory, in the live Ruby process"
  spec.description = "Exact malloc accounting by call site for Ruby: started and stopped in a running process, " \
                     "or from its first allocation. Shows live bytes for each line of Ruby, and for native callers " \
                     "that run without Ruby's lock."
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.metadata = { "rubygems_mfa_required" => "true" }

  # The whole workspace goes along, for cargo reads every member's manifest before it builds one of them.
  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.{rb,md}",
        "exe/*", "sig/**/*.{rbs,yaml}", "docs/**/*.md", "examples/**/*.{rb,ru,md,gnuplot}",
        "ext/memintro/*.{rb,rs,toml,ld}", "ext/memintro/src/**/*.rs",
        "crates/*/*.{rs,toml,ld}", "crates/*/{src,tests,benches,examples}/**/*.{rs,c}",
        "crates/*/src/**/*.{html,css,js}",
        "Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RULES.md", "LICENSE", ".yardopts"]
  end
  spec.bindir = "exe"
  spec.executables = ["memintro"]
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/memintro/extconf.rb"]
end
