# frozen_string_literal: true

# The Rust tests: nextest runs them, and plain cargo runs the examples in documentation, which nextest does not know.

require_relative "../ext/memintro/cargo_build"

# Runs cargo in the workspace with the settings of the gem's own build.
def cargo(*arguments, **env)
  build = CargoBuild.new
  build.check_tools
  sh build.environment.merge("CARGO_TARGET_DIR" => build.target_folder).merge(env.transform_keys(&:to_s)),
     "cargo", *arguments
rescue CargoBuild::Failed => e
  abort e.message
end

def nextest? = system("cargo", "nextest", "--version", out: File::NULL, err: File::NULL)

# All crates but the extension's. Its few tests that need no Ruby are run by those of crates/native: what reads Ruby's
# headers takes as long to compile, a second time and for these alone, as all other crates of others together. The
# benchmarks have no tests, but need criterion.
TESTED = %w[--workspace --exclude memintro --exclude memintro-bench].freeze
TESTS_OF_THE_EXTENSION = "crates/native/tests/of_the_extension.rs"

# Ends the task if a test of the extension would not run.
def refuse_forgotten_tests
  run = File.read(TESTS_OF_THE_EXTENSION)
  tested = FileList["ext/**/*.rs"].select { |file| File.read(file).match?(/#\[test\]|proptest!/) }
  forgotten = tested.reject { |file| run.include?(%(#[path = "../../../#{file}"])) }
  abort "#{TESTS_OF_THE_EXTENSION} does not run the tests of:\n#{forgotten.join("\n")}" if forgotten.any?
end

desc "Run the Rust tests"
task cargo: %w[cargo:test cargo:doctest]

namespace :cargo do
  desc "Compile the Rust tests, which needs nothing that `rake compile` builds"
  task :build_tests do
    cargo(*(nextest? ? %w[nextest run] : %w[test --tests]), "--no-run", "--locked", *TESTED)
  end

  desc "Run the Rust unit and integration tests"
  task test: :compile do
    refuse_forgotten_tests
    nextest? ? cargo("nextest", "run", "--locked", *TESTED) : cargo("test", "--locked", *TESTED, "--tests")
  end

  desc "Run the Rust tests but the longest, which .config/nextest.toml names"
  task fast: :compile do
    refuse_forgotten_tests
    nextest? ? cargo("nextest", "run", "--locked", "--profile", "fast", *TESTED) : Rake::Task["cargo:test"].invoke
  end

  desc "Run the examples in the Rust documentation"
  task :doctest do
    # For the same packages as the tests: otherwise cargo would compile crates again with other features.
    cargo "test", "--locked", "--doc", "--quiet", *TESTED
  end

  desc "Run the Rust tests that are marked as ignored because they take long"
  task long: :compile do
    if nextest?
      cargo "nextest", "run", "--locked", *TESTED, "--run-ignored", "ignored-only", "--no-tests", "pass"
    else
      cargo "test", "--locked", *TESTED, "--tests", "--", "--ignored"
    end
  end
end
