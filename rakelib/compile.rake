# frozen_string_literal: true

require_relative "../ext/memintro/cargo_build"

def build_into_lib(build = CargoBuild.new)
  build.run(into: File.expand_path("../lib/memintro", __dir__))
rescue CargoBuild::Failed => e
  abort e.message
end

desc "Build the extension, the hook and the tool, and put them into lib/memintro"
task(:compile) { build_into_lib }

namespace :compile do
  desc "Build what bin/demo needs, in less time: the extension and the hook, less optimized, unless all was built"
  task :demo do
    whole = CargoBuild.new
    built = whole.products.keys.all? { |file| File.exist?(file) }
    build_into_lib(built ? whole : CargoBuild.new(crates: %w[memintro memintro-hook], profile: "demo"))
  end
end

desc "Remove what was built"
task :clobber do
  rm_rf [CargoBuild.new.target_folder,
         *FileList["lib/memintro/*.so", "lib/memintro/memintro-tool", "pkg", "doc", ".yardoc", "*.gem"]]
end
