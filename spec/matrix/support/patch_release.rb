# frozen_string_literal: true

require "json"
require "rbconfig"

# Another patch release of this Ruby, to run the gem that this one built and installed.
module PatchRelease
  module_function

  # Skips the example where there is none.
  def need_patch_release
    skip ENV.fetch("MEMINTRO_MATRIX_UNPATCHED", "only `rake matrix` has another patch release") unless patch_release
  end

  # { program:, env: } of it, or nil.
  def patch_release
    text = ENV.fetch("MEMINTRO_MATRIX_PATCHED", nil)
    text && JSON.parse(text, symbolize_names: true)
  end

  # Folder of the installed gem.
  def installed = Gem::Specification.find_by_name("memintro").full_gem_path

  def library(name) = File.join(installed, "lib", "memintro", name)

  # Runs the other Ruby, which finds the gem as any other does: no folder is named.
  def run_patched(*arguments, way: :live, env: {}, **options)
    hook = way == :preloaded ? { "LD_PRELOAD" => library("libmemintro_hook.so") } : {}
    env = patch_release[:env].transform_keys(&:to_s).merge(hook, env)
    run_command(patch_release[:program], *arguments, way: way, env: env, **options)
  end

  def patched_script(name, *arguments, way:)
    run_patched("-rmemintro", File.join(Subprocess::SCRIPTS, name), *arguments.map(&:to_s), way: way).must_succeed.json
  end

  def patched_answer(code, **options)
    run_patched("-rmemintro", "-rjson", "-robjspace", "-e", code, **options).must_succeed.json
  end

  # The installed command.
  def run_patched_memintro(*arguments, **options)
    run_patched(File.join(installed, "exe", "memintro"), *arguments, way: :bare, **options)
  end
end

RSpec.configure { |config| config.include PatchRelease }
