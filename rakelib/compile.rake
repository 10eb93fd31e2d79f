# frozen_string_literal: true

require_relative "../ext/memintro/cargo_build"

build = lambda do |crates|
  CargoBuild.new(crates: crates).run(into: File.expand_path("../lib/memintro", __dir__))
rescue CargoBuild::Failed => e
  abort e.message
end

desc "Build the extension, the hook and the tool, and put them into lib/memintro"
task(:compile) { build.call(CargoBuild::PARTS.keys) }

desc "Build only the extension and the hook, which all but plots, heap files and the live view need"
task("compile:libraries") { build.call(CargoBuild::PARTS.keys - ["memintro-tool"]) }

desc "Remove what was built"
task :clobber do
  rm_rf [CargoBuild.new.target_folder,
         *FileList["lib/memintro/*.so", "lib/memintro/memintro-tool", "pkg", "doc", ".yardoc", "*.gem"]]
end
