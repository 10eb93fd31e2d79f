# frozen_string_literal: true

require "spec_helper"

# With the hook, every call runs the same definition as without it, for any other definitions of the function.
RSpec.describe "The functions that the hook takes over" do
  # [family, name] of each, as the hook has them; and those that are taken over for the end of a process.
  taken_over = File.read(File.join(Subprocess::ROOT, "crates", "hook", "src", "functions.rs"))
                   .scan(/^ +(C|Operator|Extended|Text|Loader) \w+ = "(\w+)"/)
  c_functions = taken_over.filter_map { |family, name| name if family == "C" } + %w[_exit _Exit raise]
  all_functions = c_functions | taken_over.map(&:last)

  hook = Subprocess::HOOK
  preloaded = { disabled: { hook: hook, disabled: true }, off: { hook: hook }, full: { hook: hook, mode: "full" },
                sampled: { hook: hook, mode: "sampled" } }.freeze
  all_ways = { **preloaded, live: { start: true } }.freeze

  # Whose definitions ran: each has a number of its own; libc's and the C++ runtime's have none.
  program_tag = 1
  global_tag = 2
  local_tag = 3
  other_tag = 4

  let(:ledger) { shared_module("ledger.c") }
  let(:everybody) { calling("lazy") }
  let(:cxx) { calling("cxx", "-lstdc++") }
  let(:cxx_now) { calling("cxx_now", "-lstdc++", variant: :no_plt) }
  let(:plain) { interposition }
  let(:cxx_program) { interposition(libraries: ["-lstdc++"]) }

  # A library that calls all functions, and defines the given ones.
  def interposed(label, tag: 0, defines: "ALL_FUNCTIONS", how: "function", variant: :lazy, flags: [])
    own = ["-DLABEL=\"#{label}\"", "-DTAG=#{tag}", "-DDEFINES=#{defines}", "-DHOW=#{how}", "-DCALL_ALL=call_all"]
    shared_module("interposed.c", variant: variant, flags: [*own, *flags, ledger, "-ldl"], suffix: label)
  end

  # The program, with calls and definitions of its own.
  def interposition(tag: 0, defines: "ALL_FUNCTIONS", how: "function", libraries: [])
    own = [File.join(NativePrograms::MODULES, "interposed.c"), "-DLABEL=\"program\"", "-DTAG=#{tag}",
           "-DDEFINES=#{defines}", "-DHOW=#{how}", "-DCALL_ALL=self_calls"]
    program("interposition.c", libraries: [*own, "-Wl,--no-as-needed", *libraries, ledger])
  end

  # A library that only calls, and needs these.
  def calling(label, *needed, variant: :lazy)
    interposed(label, variant: variant, flags: ["-Wl,--no-as-needed", *needed])
  end

  def opened(*libraries, how: "l") = libraries.map { |library| "open:#{how}:#{library}" }

  # Calls before and after tracking begins, and from libraries that were opened before it and after it.
  def around(*libraries, how: "l")
    first, *rest = opened(*libraries, how: how)
    [first, "self", "call", "start", "self", "call", *rest, "self", "call", "self", "call"]
  end

  def run(program, *arguments, preload: [], hook: nil, start: false, mode: nil, disabled: false)
    preloads = [hook, *preload].compact.join(":")
    env = { "LD_PRELOAD" => preloads.empty? ? nil : preloads, "MEMINTRO_MODE" => mode,
            "MEMINTRO_NATIVE_CHILDREN" => mode && "1", "MEMINTRO_DISABLE" => disabled ? "1" : nil,
            "INTERPOSITION_START" => start ? "1" : nil }
    run_command(program, *arguments, env: env).must_succeed.stdout
  end

  def differences(bare, program, arguments, preload, ways)
    ways.flat_map do |way, options|
      with_hook = run(program, *arguments, preload: preload, **options).lines
      with_hook.zip(bare.lines).filter_map { |with, without| "#{way}: #{without&.chomp} -> #{with}" if with != without }
    end
  end

  # Whose definitions ran without the hook, after it was found that the same ones do with it.
  define_method(:tags) do |program, *arguments, preload: [], ways: all_ways|
    bare = run(program, *arguments, preload: preload)
    expect(bare.lines.size).to be_positive.and(satisfy { |lines| (lines % all_functions.size).zero? })
    expect(differences(bare, program, arguments, preload, ways).join).to eq ""
    bare.scan(/@(\d)=/).flatten.map(&:to_i).uniq.sort - [0]
  end

  it "are all called by these examples, and no others are symbols of the library" do
    called = File.read(File.join(NativePrograms::PROGRAMS, "interposed.h")).scan(/^    F\((\w+),/).flatten
    expect(called).to match_array(all_functions)
    symbols = `nm -D --defined-only #{hook}`.lines.map { |line| line.split.last }
    expect(symbols).to match_array([*c_functions, "memintro_hook_api"])
  end

  it "are the system's where no library defines them" do
    [plain, cxx_program].each { |program| expect(tags(program, *around(everybody, cxx, cxx_now))).to eq [] }
  end

  { "" => { how: "function" }, ", weakly" => { how: "weak" }, ", indirectly" => { how: "indirect" },
    ", C++'s only" => { how: "function", defines: "OPERATORS" },
    ", bound to itself" => { how: "function", flags: ["-Wl,-Bsymbolic"] } }.each do |manner, definition|
    name = definition.values.flatten.join.downcase.delete("^a-z")

    # The loader refuses indirect functions of a program that libc would call.
    unless definition[:how] == "indirect" || definition.key?(:flags)
      it "are the program's own where it defines them#{manner}" do
        program = interposition(tag: program_tag, **definition)
        expect(tags(program, *around(everybody, cxx, cxx_now))).to eq [program_tag]
      end
    end

    it "are a global library's where that was preloaded, is needed or was opened with RTLD_GLOBAL#{manner}" do
      library = interposed("global#{name}", tag: global_tag, **definition)
      expect(tags(plain, *around(everybody, cxx, cxx_now), preload: [library])).to eq [global_tag]
      expect(tags(interposition(libraries: [library]), *around(everybody, cxx))).to eq [global_tag]
      expect(tags(plain, *opened(library, how: "g"), *around(everybody, cxx))).to eq [global_tag]
    end

    it "are a local library's only for the modules that need it, whether it stays or goes#{manner}" do
      library = interposed("local#{name}", tag: local_tag, **definition)
      user = calling("user#{name}", library)
      # If the program has a C++ runtime, all modules find its functions first.
      { plain => [local_tag], cxx_program => manner.include?("C++") ? [] : [local_tag] }.each do |program, expected|
        expect(tags(program, *around(library, everybody, user, cxx, cxx_now))).to eq expected
        expect(tags(program, *opened(library), "call", "close", *around(cxx, everybody))).to eq expected
        expect(tags(program, "start", *opened(library), "call", "close", *around(cxx, everybody))).to eq expected
      end
    end

    it "are for a deeply bound library its own and those of what it needs#{manner}" do
      library = interposed("deep#{name}", tag: local_tag, **definition)
      user = calling("deep_user#{name}", library, "-lstdc++")
      global = interposed("global#{name}", tag: global_tag, **definition)
      [library, user].each do |deep|
        expect(tags(plain, *around(deep, cxx, how: "d"))).to eq [local_tag]
        expect(tags(plain, *opened(everybody), *around(deep, cxx, how: "d"), preload: [global]))
          .to eq [global_tag, local_tag]
      end
    end

    it "are in a new namespace those that are there#{manner}" do
      library = interposed("apart#{name}", tag: other_tag, **definition)
      expect(tags(plain, *around(library, how: "n"), *opened(everybody), "call")).to eq [other_tag]
    end
  end

  it "are so in a Ruby that opens such libraries itself, closes them and opens others" do
    code = <<~RUBY
      require "fiddle"
      call = ->(library) { Fiddle::Function.new(library["call_all"], [], Fiddle::TYPE_VOID).call }
      own = Fiddle.dlopen(ARGV[0])
      call.(own)
      own.close
      2.times { call.(Fiddle.dlopen(ARGV[1])) }
    RUBY
    library = interposed("private", tag: local_tag, defines: "OPERATORS")
    outputs = [{ "LD_PRELOAD" => nil }, preloaded_env(mode: "off"), preloaded_env, {}].map.with_index do |env, index|
      start = "require 'memintro'; Memintro.start; " if index == 3
      run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", "-e", "#{start}#{code}", library, cxx,
                  env: env).must_succeed.stdout
    end
    expect(outputs.first.lines.size).to eq(3 * all_functions.size)
    expect(outputs.uniq).to eq [outputs.first]
  end

  it "need slots when preloaded for C++ and the loader only, and the doctor says so" do
    result = run_ruby(code: "puts Memintro.doctor", way: :preloaded).must_succeed
    expect(result.stdout).to match(/^slots +malloc and its relatives need none; others: \d+ patched.* in \d+ modules/)
  end

  describe "in a version of a library's own" do
    let(:map) { File.join(NativePrograms::MODULES, "versioned.map") }
    let(:library) { interposed("versioned", tag: global_tag, flags: ["-Wl,--version-script=#{map}"]) }
    let(:user) { calling("versioned_user", library) }

    it "are called by who was linked for that version" do
      expect(tags(plain, *around(everybody, cxx), preload: [library])).to eq [global_tag]
      expect(tags(interposition(libraries: [library]), *around(everybody, cxx), ways: all_ways.slice(:live)))
        .to eq [global_tag]
      expect(tags(plain, *around(library, user, everybody, cxx), ways: all_ways.slice(:live))).to eq [global_tag]
    end

    # As with any allocator that is preloaded: it has no versions, and answers for all.
    it "are libc's instead, all of them, where the hook was preloaded" do
      arguments = around(library, user, everybody, cxx)
      bare = run(plain, *arguments)
      lines = differences(bare, plain, arguments, [], preloaded.slice(:off))
      expect(lines).to all(match(/\Aoff: (versioned|versioned_user) (\w+): .* -> \1 \2:/))
      expect(lines.map { |line| line[/\Aoff: \w+ (\w+)/, 1] }.uniq).to match_array(c_functions)
    end
  end
end
