# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Programs whose current folder has been removed, or that have no /proc.
RSpec.describe "A process without a folder that it needs" do
  around { |example| Dir.mktmpdir { |folder| (@folder = File.realpath(folder)) && example.run } }

  # Begins in a folder that is removed at once.
  def run_without_folder(*command, **options)
    gone = Dir.mktmpdir
    run_command("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *command, chdir: gone, **options)
  end

  missing = /the current folder has been removed: change to another one, or give "x.json" with its whole path/

  it "writes files that are named with their whole path, and says of others why not" do
    found = run_without_folder(RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-rjson", "-e", <<~'RUBY', @folder)
      whole = File.join(ARGV[0], "dump.ndjson")
      objects = Memintro.heap_dump(whole)[:objects]
      dump = Memintro::HeapDump.open(whole)
      asks = { heap_dump: -> { Memintro.heap_dump("x.json") }, open: -> { Memintro::HeapDump.open("x.json") },
               html: -> { dump.html("x.json") } }
      said = asks.transform_values { |ask| ask.call rescue "#{$!.class}: #{$!.message}" }
      puts JSON.generate(objects: objects, said: said)
    RUBY
    found = found.must_succeed.json
    expect(found[:objects]).to be > 1_000
    expect(found[:said].values).to all(match(/\AMemintro::HeapDumpError: #{missing}/))
    expect(Dir.children(@folder)).to eq(%w[dump.ndjson])
  end

  it "is tracked and reported by memintro run, with a message about the rest" do
    program = [RbConfig.ruby, "-e", "puts 1; exit 7"]
    report = File.join(@folder, "report")
    ran = run_without_folder(RbConfig.ruby, Subprocess::EXE, "run", "--report", report, "--", *program)
    expect([ran.stdout, ran.stderr, ran.status.exitstatus]).to eq(["1\n", "", 7])
    expect(File.read(report)).to start_with("memintro ").and include("call sites, by live_bytes")

    [%w[run --report x.json], %w[leaks --core x.json]].each do |words|
      refused = run_without_folder(RbConfig.ruby, Subprocess::EXE, *words, *(["--", *program] if words.first == "run"))
      expect([refused.stdout, refused.stderr, refused.status.exitstatus])
        .to match(["", /\Amemintro: #{missing}\n\z/, 1])
    end
  end

  it "is examined by memintro doctor" do
    examined = run_without_folder(RbConfig.ruby, Subprocess::EXE, "doctor").must_succeed
    expect([examined.stderr, examined.stdout.lines.size]).to match(["", be > 5])
  end

  # /proc, or all of what the process sees, goes away after everything has been used once.
  def without(way)
    skip "only root can do that" unless Process.uid.zero?
    ruby = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-rjson"]
    result = run_command("unshare", "--mount", *ruby, "-e", <<~RUBY, @folder)
      asks = { account: -> { Memintro.account }, leaks: -> { Memintro.leaks },
               dump: -> { Memintro.heap_dump(File.join(ARGV[0], "dump.ndjson"))[:objects] > 1_000 } }
      asks.each_value(&:call)
      Dir.each_child(ARGV[0]) { |name| File.unlink(File.join(ARGV[0], name)) }
      #{way}
      puts JSON.generate(asks.transform_values { |ask| ask.call rescue "\#{$!.class}: \#{$!.message}" })
    RUBY
    skip "mounts are refused here: #{result.stderr}" if result.status.exitstatus == 99 || result.stderr[/^unshare:/]
    result.must_succeed.json
  end

  it "has its heap dumped without /proc, and clear errors for methods that need it" do
    found = without(%q(system("umount -l /proc 2>/dev/null") || exit!(99)))
    expect(found[:dump]).to be(true)
    missing = "a file of /proc is missing: mount /proc"
    expect(found[:account]).to start_with("Memintro::AccountError").and include(missing)
    expect(found[:leaks]).to start_with("Memintro::LeaksError").and include(missing)
    expect(Dir.children(@folder)).to eq(%w[dump.ndjson])
  end

  it "gets an error of memintro from each of them below another root" do
    found = without("Dir.mkdir(File.join(ARGV[0], 'root')); Dir.chroot(File.join(ARGV[0], 'root'))")
    expect(found.values).to all(match(/\AMemintro::\w+Error: .*(?:mount \/proc|memintro-tool)/))
    expect(Dir.children(File.join(@folder, "root"))).to eq([])
  end
end
