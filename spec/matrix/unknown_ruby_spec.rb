# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"

# A Ruby that does not have what memintro asks it for, as a future one may not.
RSpec.describe "A Ruby that lacks a function" do
  # Whatever memintro can do, a word on each: "works", or what was said instead.
  EVERYTHING = Subprocess.read_program("unknown_ruby/everything.rb")
  WALKS = %i[iseqs details internals histogram].freeze
  # Names, what goes without them, and the doctor's words for it.
  LACKING = [
    [%w[ruby_thread_has_gvl_p rb_gc_count rb_sourcefile rb_sourceline rb_profile_frames rb_profile_frame_path
        ruby_vm_at_exit], %i[lines], /call sites are native callers/],
    [%w[rb_during_gc], [:lines, *WALKS], /call sites are native callers.*the heap cannot be read/],
    [%w[rb_objspace_each_objects rb_obj_memsize_of rb_imemo_name], WALKS, /the heap cannot be read/],
    [%w[rb_objspace_internal_object_p rb_class_real rb_class_get_superclass rb_mod_name], %i[histogram],
     /the classes of objects are unknown/],
    [%w[rb_iseq_path rb_iseq_label rb_iseq_first_lineno], %i[details], /are shown without the path, the label or/],
    [%w[rb_thread_call_without_gvl2], [], /other threads wait/],
    [%w[rb_thread_create], [], /does not notice the children/],
    [%w[rb_ext_ractor_safe], %i[ractors], nil],
    [%w[ruby_native_thread_p rb_source_location_cstr ruby_current_ec rb_profile_frame_first_lineno], [], nil]
  ].freeze
  # The first two from 3.3 on, the last up to 3.3: one way would do, and the newer one is named.
  POSTPONING = %w[rb_postponed_job_preregister rb_postponed_job_trigger rb_postponed_job_register_one].freeze

  def expect_only(answer, gone, name, words)
    problems = answer.delete(:problems)
    expect(answer.reject { |_, word| word == "works" }.keys).to match_array(gone)
    if words
      expect(problems.join("\n").tr("\n", " ")).to match(words)
      expect(problems).to all(start_with("Ruby #{RUBY_VERSION} has no function #{name}, so "))
    else
      expect(problems).to eq([])
    end
  end

  def blind
    source = File.join(__dir__, "support", "blind.c")
    @blind ||= NativePrograms.build(source, "libblind.so", ["-shared", "-fPIC", "-ldl"])
  end

  # The result of the code if a function of the VM works.
  def otherwise(name, code, way)
    env = { "LD_PRELOAD" => way == :preloaded ? "#{Subprocess::HOOK}:#{blind}" : blind, "OTHERWISE" => name }
    run_ruby(code: code, flags: ["-W0"], way: way, env: env).must_succeed.json
  end

  # memintro with names misspelt wherever they stand, in the list of what it is linked against, too.
  def misspelt(*names)
    Dir.mktmpdir do |folder|
      FileUtils.cp_r([Subprocess::LIB, File.dirname(Subprocess::EXE)], folder)
      extension = File.join(folder, "lib", "memintro", "memintro.so")
      bytes = File.binread(extension)
      others = names.map { |name| "#{name[0..-2]}~" }
      names.zip(others) { |name, other| expect(bytes.gsub!(/(?<![a-z_])#{name}(?=\0)/n, other.b)).not_to be_nil }
      File.binwrite(extension, bytes)
      yield folder, *others
    end
  end

  # The abilities of that memintro, with its own hook.
  def misspelt_answer(folder, way)
    env = way == :preloaded ? { "LD_PRELOAD" => File.join(folder, "lib", "memintro", "libmemintro_hook.so") } : {}
    run_command(RbConfig.ruby, "-W0", "-I#{folder}/lib", "-rmemintro", "-e", EVERYTHING, way: way, env: env)
      .must_succeed.json
  end

  TruthDriver::WAYS.each do |way|
    LACKING.each do |names, gone, words|
      names.each do |name|
        it "loads memintro, says what cannot work, and does the rest (#{name}), #{way}" do
          misspelt(name) do |folder, other|
            expect_only(misspelt_answer(folder, way), gone, other, words)
          end
        end
      end
    end

    it "loads memintro, says what cannot work, and does the rest (all of rb_postponed_job_…), #{way}" do
      misspelt(*POSTPONING) do |folder, *others|
        answer = misspelt_answer(folder, way)
        expect_only(answer, [], others.first(2).join(", "), /does not notice the children/)
      end
    end
  end

  %w[rb_sourceline ruby_thread_has_gvl_p rb_obj_memsize_of rb_imemo_name rb_objspace_each_objects].each do |name|
    TruthDriver::WAYS.each do |way|
      it "is reported with the function's name, in errors and by the doctor (#{name}), #{way}" do
        gone, words = LACKING.find { |names, *| names.include?(name) }.drop(1)
        preload = way == :preloaded ? "#{Subprocess::HOOK}:#{blind}" : blind
        env = { "LD_PRELOAD" => preload, "BLIND_TO" => name }
        answer = run_ruby(code: EVERYTHING, flags: ["-W0"], way: way, env: env).must_succeed.json
        (gone & WALKS).each do |walk|
          lacks = "Memintro::UnknownRubyError: this Ruby has no function #{name}, which memintro needs"
          expect(answer[walk]).to start_with(lacks)
        end
        expect_only(answer, gone, name, words)
      end
    end
  end

  # A future Ruby may have all names and keep what is read without a function elsewhere.
  TruthDriver::WAYS.each do |way|
    it "does not take other objects for instruction sequences where their kind has another number, #{way}" do
      answer = otherwise("rb_imemo_name", EVERYTHING, way)
      expect(answer.values_at(:iseqs, :details)).to all(start_with("Memintro::UnknownRubyError: "))
      expect(answer.except(:problems, :iseqs, :details).values.uniq).to eq(["works"])
    end

    it "asks the VM for each line where frames do not lie as they used to, #{way}" do
      code = <<~'RUBY'
        require "json"
        Memintro.start
        $kept = Array.new(1000) { |i|
          "x" * (5000 + i)
        }
        Memintro.stop
        compiles = !!(defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)
        puts JSON.generate(compiles: compiles, **Memintro["-e:4"].to_h.slice(:live_blocks, :frees, :live_bytes))
      RUBY
      answer = otherwise("rb_profile_frames", code, way)
      # With what Ruby's own heap takes where it grows meanwhile, and what a compiler takes there, and gives back.
      blocks, frees = answer[:compiles] ? [1000..1060, 0..1000] : [1000..1020, 0..0]
      expect(answer[:live_blocks]).to be_between(blocks.begin, blocks.end)
      expect(answer[:frees]).to be_between(frees.begin, frees.end)
      expect(answer[:live_bytes]).to be_between(5_500_500, 5_510_000)
    end
  end

  it "lets the command say so, and measure" do
    misspelt("ruby_thread_has_gvl_p") do |folder, other|
      command = [RbConfig.ruby, File.join(folder, "exe", "memintro")]
      doctor = run_command(*command, "doctor")
      rss = run_command(*command, "rss", Process.pid.to_s)
      expect(doctor.stdout).to include("has no function #{other}, so call sites are native callers")
      expect(rss.must_succeed.stdout).to match(/\d/)
    end
  end

  it "is only bound at load to functions of Ruby's stable C API" do
    linked = `nm -D --undefined-only #{File.join(Subprocess::LIB, "memintro", "memintro.so")}`.scan(/ U (\w+)/).flatten
    expect(linked).to include("rb_define_module", "rb_str_new")
    expect(linked & LACKING.flat_map(&:first)).to eq([])
    # In the public headers of all versions.
    public_functions = %w[rb_gc rb_gc_disable rb_gc_enable rb_gc_mark rb_gc_register_address rb_gc_register_mark_object
                          rb_thread_current rb_thread_local_aset]
    inner = /\A(ruby_|rb_(gc|iseq|objspace|profile|thread|obj_mem|imemo|source|vm|postponed))/
    expect(linked.grep(inner) - public_functions).to eq([])
  end
end
