# frozen_string_literal: true

# Called by `gem install`: writes the Makefile that RubyGems runs next (`make clean`, `make`, `make install`).
# Both libraries and the tool end side by side in <sitearchdir>/memintro, which RubyGems points at the gem's own
# folders.

require_relative "cargo_build"

build = CargoBuild.new
begin
  build.check_tools
rescue CargoBuild::Failed => e
  abort e.message
end

quote = ->(text) { "'#{text.gsub("'", "'\\\\''").gsub('$', '$$')}'" }
environment = build.environment.map { |name, value| "#{name}=#{quote[value]}" }.join(" ")
installs = build.products.map do |source, name|
  "\tinstall -m 755 #{quote[source]} \"$(DESTDIR)$(sitearchdir)/memintro/#{name}\""
end
# An installed gem has no use for what cargo leaves behind, which is 20 times the size of the libraries.
unless build.checkout?
  installs << "\trm -rf #{quote[build.target_folder]}"
  installs << "\trmdir #{quote[File.dirname(build.target_folder)]} 2>/dev/null || true"
end

File.write("Makefile", <<~MAKEFILE)
  SHELL = /bin/sh
  DESTDIR =
  sitearchdir = #{RbConfig.expand(RbConfig::CONFIG['sitearchdir'].dup)}

  .PHONY: all install clean

  all:
  \tenv #{environment} #{build.command.map(&quote).join(' ')}

  install: all
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/memintro"
  #{installs.join("\n")}

  clean:
  \trm -rf #{quote[build.target_folder]}
MAKEFILE
