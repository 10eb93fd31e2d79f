# frozen_string_literal: true

require_relative "../spec_helper"

# A thread that is cancelled asynchronously inside malloc is unwound through the hook's frames. A function that has to
# clean up on the way has a language-specific data area (LSDA), and an `extern "C"` one that has it aborts the process
# when it is unwound. So nothing that runs inside malloc or free may have one, but what lets the exceptions of operator
# new pass. One more call in a function is enough to give it one. Tests that cancel threads seldom hit it; tables tell.
RSpec.describe "cleanup tables of the hook" do
  # Addresses of functions that say how they are unwound, and whether each has an LSDA.
  def descriptions(library)
    tables = {}
    frames = IO.popen(["readelf", "--debug-dump=frames", library], err: File::NULL, &:read)
    frames.scan(/^(\h+) .* CIE\n.*\n  Augmentation: +"(\w*)"/) { |cie, flags| tables[cie.hex] = flags.include?("L") }
    frames.scan(/ FDE cie=(\h+) pc=(\h+)\.\./).to_h { |cie, address| [address.hex, tables.fetch(cie.hex)] }
  end

  # Functions of ours with an LSDA, by name.
  def with_table(library)
    names = names_by_address(library)
    descriptions(library).filter_map { |address, has_table| names[address] if has_table }
  end

  def names_by_address(library)
    lines = IO.popen(["nm", "--demangle", library], &:readlines).grep(/ [tTwW] .*\bmemintro_/)
    lines.to_h do |line|
      address, _, name = line.chomp.split(" ", 3)
      [address.to_i(16), name.gsub(/\{+closure[^}]*\}+/, "{closure}").gsub(/\A<|>\z/, "")]
    end
  end

  let(:operators) do
    %w[new new_aligned new_aligned_nothrow new_array new_array_aligned new_array_aligned_nothrow new_array_nothrow
       new_nothrow].map { |name| "memintro_hook::intercept::#{name}::{closure}" }
  end
  # What takes something that must be given back, with pages of stack that it has made sure of.
  let(:outside_malloc) do
    %w[exit::on_fatal_signal hook_api::blocks hook_api::dump_to hook_api::each_object hook_api::each_site
       hook_api::each_stack hook_api::mark hook_api::patches hook_api::refresh hook_api::sample_objects hook_api::sites
       hook_api::start hook_api::stop hook_api::track_objects in_band::leave init::constructor init::destructor
       intercept::look_for_new_modules intercept::observe_dlopen other_process::visit
       start::start::{closure} state::deactivate].map { |name| "memintro_hook::#{name}" }
  end

  it "are those of operator new, and of functions that do not run inside malloc" do
    expect(names_by_address(Subprocess::HOOK).values).to include("memintro_hook::intercept::malloc")
    expect(with_table(Subprocess::HOOK)).to match_array(operators + outside_malloc)
  end

  # A signal may come upon each instruction of malloc, and its handler ask for the callers.
  it "are not all: stubs, exported ones too, and what the short path ends with say how they are unwound" do
    known = descriptions(Subprocess::HOOK)
    places = IO.popen(["nm", Subprocess::HOOK], &:read).scan(/^(\h+) [tT] (\S+)$/)
    naked = places.select do |_, name|
      name.match?(/\A(malloc|free|calloc|realloc)\z|5stubs.*4stub|in_full.*(5known|9somewhere|7unusual)/)
    end
    expect(naked.size).to be > 30
    expect(naked.reject { |address, _| known.key?(address.hex) }.map(&:last)).to eq([])
  end
end
