# frozen_string_literal: true

require_relative "../ext/memintro/cargo_build"

compile = lambda do |**options|
  CargoBuild.new(**options).run(into: File.expand_path("../lib/memintro", __dir__))
rescue CargoBuild::Failed => e
  abort e.message
end

desc "Build the extension, the hook and the tool, and put them into lib/memintro"
task(:compile) { compile.call }

namespace :compile do
  desc "Build the extension and the hook alone, which tracking needs"
  task(:libraries) { compile.call(crates: %w[memintro memintro-hook]) }
end

desc "Remove what was built"
task :clobber do
  rm_rf [CargoBuild.new.target_folder,
         *FileList["lib/memintro/*.so", "lib/memintro/memintro-tool", "pkg", "doc", ".yardoc", "*.gem"]]
end
