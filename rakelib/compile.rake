# frozen_string_literal: true

require_relative "../ext/memintro/cargo_build"

desc "Build the extension, the hook and the tool, and put them into lib/memintro"
task :compile do
  CargoBuild.new.run(into: File.expand_path("../lib/memintro", __dir__))
rescue CargoBuild::Failed => e
  abort e.message
end

desc "Remove what was built"
task :clobber do
  rm_rf [CargoBuild.new.target_folder,
         *FileList["lib/memintro/*.so", "lib/memintro/memintro-tool", "pkg", "doc", ".yardoc", "*.gem"]]
end
