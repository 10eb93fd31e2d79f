# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"

# The changes that spec/integration/typical_changes_spec.rb makes on a copy.
RSpec.describe "The files of a typical change" do
  root = File.expand_path("../..", __dir__)

  # Each with its section of CONTRIBUTING.md, and how many files it touches by hand.
  { "a figure of a call site" => ["figure", "### 1.", 3], "a setting" => ["setting", "### 2.", 2],
    "a format of reports" => ["format", "### 7.", 3] }.each do |change, (name, section, count)|
    patch = "#{root}/spec/fixtures/changes/#{name}.patch"

    it "are named in CONTRIBUTING.md: #{change}" do
      guide = File.read("#{root}/CONTRIBUTING.md")[/^#{section}.*?(?=^### )/m]
      files = File.read(patch).scan(%r{^\+\+\+ b/(.*)$}).flatten
      expect(files.size).to eq(count)
      expect(files.reject { |file| guide.include?("`#{file}`") || guide.include?("`#{File.dirname(file)}`") }).to eq([])
    end

    it "are as the change expects them: #{change}" do
      text, status = Open3.capture2e("git", "apply", "--check", patch, chdir: root)
      expect(text).to eq("")
      expect(status).to be_success
    end
  end
end
