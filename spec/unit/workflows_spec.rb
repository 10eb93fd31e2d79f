# frozen_string_literal: true

require_relative "../spec_helper"
require "yaml"

RSpec.describe "The workflows of the repository" do
  root = File.expand_path("../..", __dir__)
  files = Dir["#{root}/.github/workflows/*.yml"]
  steps = files.flat_map { |file| YAML.safe_load(File.read(file))["jobs"].values.flat_map { |job| job["steps"] } }

  it "name each action by a commit, and its version in a comment" do
    lines = files.flat_map { |file| File.readlines(file) }.grep(/uses:/)
    expect(lines.grep_v(%r{uses: [\w-]+/[\w-]+@\h{40} # v\d+$})).to eq([])
    expect(lines.size).to be > 5
  end

  it "run programs of the checkout that are there" do
    programs = steps.filter_map { |step| step["run"].to_s[%r{^(?:\.ci|bin|exe)/\w+}] }.uniq
    expect(programs).to include(".ci/run", "bin/test", "bin/setup")
    expect(programs.reject { |program| File.executable?("#{root}/#{program}") }).to eq([])
  end

  it "run tasks that rake has" do
    tasks = IO.popen(%w[rake -AT], chdir: root, &:read).scan(/^rake ([\w:]+)/).flatten
    named = steps.filter_map { |step| step["run"].to_s[/^rake ([\w:]+)/, 1] }
    expect(named - tasks).to eq([])
    expect(named).to include("native:check", "matrix:musl")
  end
end
