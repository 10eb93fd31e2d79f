# frozen_string_literal: true

# Every supported Ruby and allocator, each Ruby in a Debian root of its own below .matrix/ (needs root or sudo, and
# debootstrap). What was set up once is used again; `rake matrix:clobber` removes it.
#
#   rake matrix              all Rubies of rakelib/matrix/rubies.yml, every suite
#   rake matrix[3.4]         one of them; several: rake "matrix[3.3 3.4]"
#   rake "matrix[/opt/ruby-4.0]"   a Ruby that is installed here, by its prefix; without a Debian root
#   rake matrix MEMINTRO_MATRIX_REVISION=HEAD   the same for a commit, not for the files as they are
#   rake matrix MEMINTRO_MATRIX_SUITES="table,behind the hook"   these suites alone
#   rake "matrix:specs[/opt/ruby-4.0]"  the specs of this checkout alone, compiled in place: bin/test --ruby
#   rake matrix:aarch64      the hook alone, cross-built and run under emulation
#   rake matrix:other_targets  the Rust tests on musl, and whether the compiler accepts the rest for it and for macOS
#   rake matrix:musl         the extension in a Ruby that is built with musl
#   rake matrix:smoke        those marked `smoke`: gem install, the demo's leak, truth tests

MATRIX_FOLDER = File.expand_path("../.matrix", __dir__)

# The classes are only for these tasks, so other tasks do not load them.
matrix = lambda do |names, smoke: false|
  require_relative "matrix/run"
  Matrix::Run.new(folder: MATRIX_FOLDER, checkout: File.dirname(__dir__)).call(names.to_s.split, smoke: smoke)
rescue Matrix::Failed => e
  abort "matrix: #{e.message}"
end

desc "Run the specs on every supported Ruby and allocator, or on one Ruby: rake matrix[3.4]"
task :matrix, [:rubies] do |_task, arguments|
  matrix[[arguments.rubies, *arguments.extras].compact.join(" ")]
end

namespace :matrix do
  desc "Build, install and try the gem on the Rubies other than this one"
  task :smoke, [:rubies] do |_task, arguments|
    matrix[[arguments.rubies, *arguments.extras].compact.join(" "), smoke: true]
  end

  desc "Compile this checkout with an installed Ruby, and run the specs: rake matrix:specs[/opt/ruby-4.0]"
  task :specs, [:prefix] do |_task, arguments|
    require_relative "matrix/installed_ruby"
    ruby = Matrix::InstalledRuby.new(arguments.fetch(:prefix), folder: MATRIX_FOLDER)
    ruby.prepare
    puts ruby.description
    sh ruby.environment, "rake", "compile", "spec", verbose: false
  rescue Matrix::Failed => e
    abort "matrix: #{e.message}"
  end

  # Each of these has a class of its own in matrix/.
  platform = lambda do |name|
    require_relative "matrix/#{name}"
    kind = Matrix.const_get(name.split("_").map(&:capitalize).join)
    kind.new(folder: MATRIX_FOLDER, checkout: File.dirname(__dir__)).call
  rescue Matrix::Failed => e
    abort "matrix: #{e.message}"
  end

  desc "Cross-build the hook for aarch64 and hold it against the truth program under emulation"
  task(:aarch64) { platform["aarch64"] }

  desc "Run the Rust tests that have no Ruby in them on musl, and ask the compiler what it accepts for musl and macOS"
  task(other_targets: :compile) { platform["other_targets"] }

  desc "Build a Ruby with musl, build the extension for it, and check there what needs no hook"
  task(:musl) { platform["musl"] }

  desc "Remove the Debian roots and everything built in them"
  task :clobber do
    rm_rf MATRIX_FOLDER
  end
end
