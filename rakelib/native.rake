# frozen_string_literal: true

# The precompiled gem: for Debian's Rubies, compiled with Debian's oldest supported glibc in the roots of `rake matrix`
# (needs root or sudo, and debootstrap). docs/install.md is about its use.
#
#   rake native         pkg/memintro-VERSION-x86_64-linux-gnu.gem, and beside it the debug files
#   rake native:check   built twice and compared; installed in Debian roots with Ruby and nothing else, and tried
#
# Both take prefixes of Rubies that are installed on this machine, for which the gem is compiled as well:
# rake "native[/opt/ruby-4.0]".

native = lambda do |kind, arguments|
  require_relative "native/#{kind}"
  prefixes = [arguments.prefixes, *arguments.extras].compact.flat_map(&:split)
  Native.const_get(kind.capitalize).new(matrix: File.expand_path("../.matrix", __dir__),
                                        checkout: File.dirname(__dir__), prefixes: prefixes).call
rescue Native::Failed, Matrix::Failed => e
  abort "native: #{e.message}"
end

desc "Build the precompiled gem into pkg/"
task :native, [:prefixes] => "release:version" do |_task, arguments|
  build = native["build", arguments]
  rm_rf "pkg/#{Native::DEBUG}", verbose: false
  mkdir_p "pkg", verbose: false
  cp build.gem, "pkg/", verbose: false
  cp_r build.debug, "pkg/", verbose: false
  puts build.description
end

namespace :native do
  desc "Build the precompiled gem twice, compare, and try it in Debian roots that have no compiler"
  task(:check, [:prefixes]) { |_task, arguments| native["check", arguments] }
end
