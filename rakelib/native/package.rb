# frozen_string_literal: true

# Makes the precompiled gem of a folder that holds the gem's files and the compiled parts:
#
#   ruby package.rb FOLDER PLATFORM OLDEST_GLIBC OUTPUT
#
# It is always run by the Ruby of one Debian, because RubyGems writes its own version into a package, and old versions
# leave the "gnu" out of the platform. Dates are those of SOURCE_DATE_EPOCH.

require "rubygems/package"

folder, platform, oldest_glibc, output = ARGV
Dir.chdir(folder)
rubies = Dir["lib/memintro/[0-9]*/memintro.so"].map { |file| File.basename(File.dirname(file)) }
                                               .sort_by { |version| version.split(".").map(&:to_i) }
major, minor = rubies.last.split(".").map(&:to_i)

spec = Gem::Specification.load(File.join(folder, "memintro.gemspec"))
spec.platform = Gem::Platform.new(platform)
spec.extensions = []
# A Ruby between these for which the gem was not compiled cannot be excluded here; it gets a message when it loads
# memintro.
spec.required_ruby_version = [">= #{rubies.first}", "< #{major}.#{minor + 1}.dev"]
spec.metadata = spec.metadata.merge("compiled_for_ruby" => rubies.join(", "), "oldest_glibc" => oldest_glibc)
spec.files = spec.files.grep_v(%r{\A(ext|crates)/|\ACargo\.}) +
             Dir["lib/memintro/{,[0-9]*/}*.so", "lib/memintro/memintro-tool"].sort + ["THIRD_PARTY_LICENSES"]
spec.files.each { |file| File.chmod(file.match?(%r{\Aexe/|\.so\z|-tool\z}) ? 0o755 : 0o644, file) }
Gem::Package.build(spec, false, false, output)
