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

desc "Run the Rust tests"
task cargo: %w[cargo:test cargo:doctest]

namespace :cargo do
  desc "Run the Rust unit and integration tests"
  task test: :compile do
    nextest? ? cargo("nextest", "run", "--locked", "--workspace") : cargo("test", "--locked", "--workspace", "--tests")
  end

  desc "Run the examples in the Rust documentation"
  task :doctest do
    # For the whole workspace: for some packages alone, cargo would compile the crates of others again with other
    # features.
    cargo "test", "--locked", "--doc", "--quiet", "--workspace"
  end

  desc "Run the Rust tests that are marked as ignored because they take long"
  task long: :compile do
    if nextest?
      cargo "nextest", "run", "--locked", "--workspace", "--run-ignored", "ignored-only", "--no-tests", "pass"
    else
      cargo "test", "--locked", "--workspace", "--tests", "--", "--ignored"
    end
  end
end
