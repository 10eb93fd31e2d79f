# frozen_string_literal: true

require "spec_helper"

# docs/ruby_versions.md has the Rubies that the extension knows.
RSpec.describe "The page about versions of Ruby" do
  page = File.read(File.join(Subprocess::ROOT, "docs/ruby_versions.md"))

  it "lists the Rubies of whose objects the extension knows the memory" do
    *others, last = Memintro::Native.known_rubies
    expect(page).to include("| objects as in #{others.join(', ')} or #{last} |")
    expect(Memintro::Native.known_rubies).to all(satisfy { |version| page.match?(/Ruby .*\b#{version}\.\d+/) })
  end
end
