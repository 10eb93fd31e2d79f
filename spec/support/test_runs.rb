# frozen_string_literal: true

require "json"
require_relative "subprocess"

# Runs a file of spec/fixtures/tests with a real RSpec or Minitest, in a process of its own.
module TestRuns
  FOLDER = File.join(Subprocess::ROOT, "spec", "fixtures", "tests")

  # RSpec's own program: that of Debian may be of another Ruby. Without the settings of the user who runs this.
  RSPEC = ["-e", "require 'rspec/core'; RSpec::Core::Runner.invoke", "--", "--options", File::NULL].freeze

  # One example: its status, and the message of its failure.
  Outcome = Struct.new(:status, :message)

  # @return [Array(Hash{String => Outcome}, Process::Status)] by description
  def rspec_run(file, *arguments, lib: Subprocess::LIB, **options)
    command = [RbConfig.ruby, "-I#{lib}", *RSPEC, "--format", "json", File.join(FOLDER, file), *arguments]
    result = run_command(*command, way: :live, **options)
    examples = JSON.parse(result.stdout[/^\{.*\}$/].to_s).fetch("examples")
    outcomes = examples.to_h do |example|
      error = example.dig("exception", "message") || example["pending_message"]
      [example.fetch("description"), Outcome.new(example.fetch("status"), error)]
    end
    [outcomes, result.status]
  rescue JSON::ParserError
    raise "rspec gave no report\n--- stdout\n#{result.stdout}\n--- stderr\n#{result.stderr}"
  end

  # Plugins of gems that are installed, such as Rails', need gems that may not be.
  NO_PLUGINS = { "MT_NO_PLUGINS" => "1" }.freeze

  # @return [Array(String, Process::Status)] what it printed
  def minitest_run(file, *arguments, env: {}, **options)
    result = run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", File.join(FOLDER, file), "--verbose", *arguments,
                         way: :live, env: NO_PLUGINS.merge(env), **options)
    [result.stdout + result.stderr, result.status]
  end
end

RSpec.configure { |config| config.include TestRuns } if defined?(RSpec)
