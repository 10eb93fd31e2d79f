# frozen_string_literal: true

# The precompiled gem: for Debian's Rubies, compiled with Debian's oldest supported glibc in the roots of `rake matrix`
# (needs root or sudo, and debootstrap). docs/install.md is about its use.
#
#   rake native         pkg/memintro-VERSION-x86_64-linux-gnu.gem, and beside it the debug files
#   rake native:check   built twice and compared; installed in Debian roots with Ruby and nothing else, and tried

native = lambda do |kind|
  require_relative "native/#{kind}"
  Native.const_get(kind.capitalize).new(matrix: File.expand_path("../.matrix", __dir__),
                                        checkout: File.dirname(__dir__)).call
rescue Native::Failed, Matrix::Failed => e
  abort "native: #{e.message}"
end

desc "Build the precompiled gem into pkg/"
task native: "release:version" do
  build = native["build"]
  rm_rf "pkg/#{Native::DEBUG}", verbose: false
  mkdir_p "pkg", verbose: false
  cp build.gem, "pkg/", verbose: false
  cp_r build.debug, "pkg/", verbose: false
  puts build.description
end

namespace :native do
  desc "Build the precompiled gem twice, compare, and try it in Debian roots that have no compiler"
  task(:check) { native["check"] }
end
