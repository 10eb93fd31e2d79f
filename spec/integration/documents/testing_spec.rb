# frozen_string_literal: true

require_relative "../../spec_helper"

# The tests that docs/testing.md shows, run by a real RSpec and a real Minitest.
RSpec.describe "Tests in docs/testing.md" do
  def run_block(name, *command)
    block = Documents.blocks("ruby #{name}").first
    Dir.mktmpdir do |folder|
      FileUtils.mkdir_p(File.dirname("#{folder}/#{name}"))
      File.write("#{folder}/#{name}", block.code)
      command = [RbConfig.ruby, "-I#{Subprocess::LIB}", *command, name]
      run_command(*command, way: :live, chdir: folder, env: TestRuns::NO_PLUGINS)
    end
  end

  it "pass in RSpec" do
    result = run_block("spec/parser_spec.rb", *TestRuns::RSPEC)
    expect([result.stdout[/\d+ examples, .*/], result.status.exitstatus]).to eq(["3 examples, 0 failures", 0])
  end

  it "pass in Minitest" do
    skip "no minitest here" if Gem::Specification.find_all_by_name("minitest").empty?
    result = run_block("test/parser_test.rb")
    expect(result.stdout).to include("4 runs, 4 assertions, 0 failures, 0 errors, 0 skips")
    expect(result.status.exitstatus).to eq(0)
  end
end
