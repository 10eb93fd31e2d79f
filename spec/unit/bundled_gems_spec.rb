# frozen_string_literal: true

require_relative "../spec_helper"

# spec/fixtures/modules/fiddle.c beside Ruby's own fiddle, where there is one.
RSpec.describe "The specs' own fiddle" do
  code = <<~'RUBY'
    require ARGV[0]
    block = Fiddle.realloc(Fiddle.malloc(100), 200)
    Fiddle::Pointer.new(block)[2, 3] = "abcd"
    libc = Fiddle.dlopen(nil)
    pid = Fiddle::Function.new(libc["getpid"], [], Fiddle::TYPE_INT).call
    length = Fiddle::Function.new(libc["strnlen"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_SIZE_T)
    same = Fiddle.dlunwrap(Fiddle.dlwrap(length)).equal?(length)
    unknown = begin; libc["no_such_name"]; rescue Fiddle::DLError => e; e.class; end
    text = Fiddle::Pointer["four"]
    p [Fiddle::Pointer.new(block)[2, 3], pid == $$, length.call("sixsix", 100), same, unknown, text[0, 4], text.size]
  RUBY

  { "own" => "./fiddle.so", "Ruby's" => "fiddle" }.each do |whose, name|
    it "answers as fiddle does (#{whose})" do
      folder = File.dirname(extension("fiddle.c"))
      result = run_command(RbConfig.ruby, "-e", code, name, chdir: folder).must_succeed
      expect(result.stdout).to eq(%(["abc", true, 6, true, Fiddle::DLError, "four", 4]\n))
    end
  end
end
