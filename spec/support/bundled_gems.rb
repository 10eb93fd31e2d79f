# frozen_string_literal: true

require_relative "native_programs"

# A Ruby that was built from source may have no bundled gems. Programs of the specs that call C through fiddle get
# spec/fixtures/modules/fiddle.c then, which has what they use.
begin
  require "fiddle"
rescue LoadError
  folder = File.dirname(NativePrograms.extension("fiddle.c"))
  $LOAD_PATH.unshift(folder)
  ENV["RUBYLIB"] = [folder, *ENV["RUBYLIB"]].join(File::PATH_SEPARATOR)
  require "fiddle"
end
