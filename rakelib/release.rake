# frozen_string_literal: true

require_relative "../lib/memintro/version"

desc "Build the gem into pkg/"
task gem: "release:version" do
  mkdir_p "pkg"
  sh "gem", "build", "--output", "pkg/memintro-#{Memintro::VERSION}.gem", "memintro.gemspec"
end

namespace :release do
  desc "The same version in the gem and the crates, and a word about it in the change log"
  task :version do
    crates = File.read("Cargo.toml")[/^version = "(.*)"/, 1]
    abort "Cargo.toml says #{crates}, lib/memintro/version.rb #{Memintro::VERSION}" unless crates == Memintro::VERSION

    headings = File.readlines("CHANGELOG.md").grep(/^## /)
    next if headings.any? { |line| line.include?("Unreleased") || line.include?(Memintro::VERSION) }

    abort "CHANGELOG.md has neither a section for #{Memintro::VERSION} nor an unreleased one"
  end
end
