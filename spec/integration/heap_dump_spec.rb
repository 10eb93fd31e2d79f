# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require_relative "../support/terminal"
require "tmpdir"
require "zlib"

# A dump of the heap holds what ObjectSpace.dump_all writes, and costs the process one clone.
RSpec.describe "a dump of the heap", :listening, :vm do
  around { |example| Dir.mktmpdir("memintro-dump") { |folder| (@folder = folder) && example.run } }

  def path(name) = File.join(@folder, name)

  def lines(file) = File.readlines(file, encoding: "UTF-8").map { |line| JSON.parse(line) }

  # Runs code with `file`, and returns what it printed as JSON.
  def answer(code, *arguments, **options)
    code = "require 'json'; file = ARGV[0]; #{code}"
    run_ruby(nil, path("x.ndjson"), *arguments, code: code, **options).must_succeed.json
  end

  NO_ENVIRONMENT = { "RAILS_ENV" => nil, "RACK_ENV" => nil, "APP_ENV" => nil }.freeze
  # Prints the class and message of the error.
  RESCUE = "rescue StandardError => e; puts JSON.generate([e.class.name, e.message]); end"

  it "has the objects, fields and values of dump_all for every type" do
    found = run_ruby("heap_dump_compare.rb", @folder, requires: []).must_succeed.json
    expect(found[:kept_unlike]).to eq([])
    expect(found[:kept]).to be > 75
    # The heap goes on between the two dumps: files and frames of the second, the cache of a call.
    expect(found.values_at(:only_ours, :both)).to match([0, be > 15_000])
    expect(found[:only_theirs]).to be < 100
    expect(found[:unlike_objects]).to be < 30, found[:unlike].inspect
    expect(found[:types]).to include(*%w[ARRAY BIGNUM CLASS COMPLEX DATA FILE FLOAT HASH ICLASS IMEMO MATCH MODULE
                                         OBJECT RATIONAL REGEXP STRING STRUCT SYMBOL])
    expect(found.values_at(:fields_missing, :fields_more)).to eq([[], []])
    expect(found[:roots]).to eq(["memintro", *found[:other_roots], "end"])
    expect((found[:vm] - found[:other_vm]).abs).to be < 10
    expect(found[:last]).to eq(found[:written][:objects])
  end

  it "hides the contents of strings outside of development, but shows whether two are equal", :vm_long do
    code = "KEPT = [2, 2, 3].map { |i| 'swordfish ' * i }; puts JSON.generate(Memintro.heap_dump(file))"
    [{}, { "RACK_ENV" => "production" }, { "RAILS_ENV" => "development", "APP_ENV" => "staging" }].each do |env|
      expect(answer(code, env: NO_ENVIRONMENT.merge(env))[:redacted]).to be(true), env.inspect
      expect(File.read(path("x.ndjson"))).not_to include("swordfish ")
      kept = lines(path("x.ndjson")).select { |line| line["type"] == "STRING" && [20, 30].include?(line["bytesize"]) }
      hashes = kept.group_by { |line| line["value_hash"] }.transform_values(&:size)
      expect(hashes.keys).to all(match(/\A\h{16}\z/))
      expect(hashes.values).to include(2, 1)
    end
    expect(answer(code, env: NO_ENVIRONMENT.merge("RACK_ENV" => "test"))[:redacted]).to be(false)
    expect(File.read(path("x.ndjson"))).to include(%("value":"#{'swordfish ' * 3}"))
  end

  it "writes plain, gzip and zstd files that only their owner reads, and shows how far it is", :vm_long do
    found = answer(<<~RUBY)
      File.write(file, "an earlier one")
      kept = Array.new(300_000) { |i| [i] }
      seen = []
      done = ["", ".gz", ".zst"].map { |ending| Memintro.heap_dump(file + ending) { |objects| seen << objects } }
      children = begin; Process.wait; rescue SystemCallError => e; e.class.name; end
      puts JSON.generate(done: done, seen: seen, children: children)
    RUBY
    expect(found[:children]).to eq("Errno::ECHILD")
    expect(found[:done].map { |one| one[:compression] }).to eq(%w[plain gzip zstd])
    expect(found[:done]).to all(include(objects: be > 300_000, unread_types: 0, pause_ms: be < 500))
    expect(found[:done].drop(1)).to all(satisfy { |one| one[:bytes] * 4 < one[:uncompressed_bytes] })
    expect(found[:seen].max.to_i).to be <= found[:done].map { |one| one[:objects] }.max
    plain = File.readlines(path("x.ndjson"))
    expect(plain.size).to be > found[:done][0][:objects]
    expect(JSON.parse(plain.first))
      .to include("root" => "memintro", "format" => 1, "ruby" => RUBY_VERSION, "redacted" => true)
    expect(JSON.parse(plain.last))
      .to eq("type" => "ROOT", "root" => "end", "objects" => found[:done][0][:objects], "references" => [])
    last = Zlib::GzipReader.open(path("x.ndjson.gz")) { |gzip| gzip.each_line.inject { |_, line| line } }
    expect(last).to include('"root":"end"')
    expect(Dir.children(@folder).sort).to eq(%w[x.ndjson x.ndjson.gz x.ndjson.zst])
    expect(Dir[path("*")].map { |file| File.stat(file).mode & 0o777 }).to all(eq(0o600))
    expect(File.binread(path("x.ndjson.zst"), 4)).to eq("\x28\xb5\x2f\xfd".b)
  end

  it "leaves an earlier file as it is, and says what to do, wherever something is in the way", :vm_long do
    File.symlink("elsewhere", path("link"))
    File.mkfifo(path("fifo"))
    File.write(path("x.ndjson"), "earlier")
    found = answer(<<~RUBY)
      folder = File.dirname(file)
      places = [File.join(folder, "link"), folder, "/dev/null", File.join(folder, "fifo"), File.join(folder, "none/x")]
      errors = places.map do |place|
        Memintro.heap_dump(place)
      rescue Memintro::HeapDumpError => e
        e.message
      end
      Process.setrlimit(:FSIZE, 1 << 20)
      begin; Memintro.heap_dump(file); rescue Memintro::HeapDumpError => e; errors << e.message; end
      Process.setrlimit(:FSIZE, 1 << 40) rescue nil
      begin; Memintro.heap_dump(file, seconds: 0); rescue ArgumentError => e; errors << e.message; end
      begin; Memintro.heap_dump(1); rescue TypeError => e; errors << e.message; end
      puts JSON.generate(errors)
    RUBY
    expect(found).to match([/link cannot be written: it is a symbolic link; give the file that it leads to/,
                            /it is a folder; give a file in it/, %r{/dev/null cannot be written: it is no file},
                            /fifo cannot be written: it is no file/,
                            /none: No such file or directory/,
                            /x.ndjson was not written, and nothing of it is left: no file of this process may be/,
                            /seconds is 0; it must be an Integer from 1 to 86400/, /path is 1; it must be a String/])
    expect(Dir.children(@folder).sort).to eq(%w[fifo link x.ndjson])
    expect(File.read(path("x.ndjson"))).to eq("earlier")
  end

  it "leaves nothing behind when it is interrupted, and when the process is killed", :vm_long do
    # Written in a second, and in a third of one where two processors are idle.
    slow = "kept = Array.new(4_000_000) { |i| [i] }; "
    found = answer("#{slow}require 'timeout'; begin; Timeout.timeout(0.1) { Memintro.heap_dump(file) }; #{RESCUE}")
    expect(found.first).to eq("Timeout::Error")
    expect(Dir.children(@folder)).to eq([])
    reader, writer = IO.pipe
    pid = spawn(bare_env, RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e",
                "#{slow}$stdout.sync = true; Memintro.heap_dump(ARGV[0]) { puts :going }", path("y"),
                out: writer, err: File::NULL)
    writer.close
    reader.gets
    Process.kill(:KILL, pid)
    Process.wait(pid)
    # The copy and the tool end with it: the other end of its output is closed everywhere.
    Timeout.timeout(20) { reader.read }
    sleep(0.2)
    expect(Dir.children(@folder)).to eq([])
  end

  # A data object whose mark function is this function of the C library.
  def dump_with_mark_functions(*names)
    answer(<<~RUBY)
      require "fiddle"
      GC.disable
      pointers = [Fiddle::TYPE_VOIDP] * 4
      wrap = Fiddle::Function.new(Fiddle::Handle::DEFAULT["rb_data_object_wrap"], pointers, Fiddle::TYPE_VOIDP)
      #{names}.each { |name| wrap.call(Fiddle.dlwrap(Object), 1, Fiddle::Handle::DEFAULT[name], 0) }
      done = Memintro.heap_dump(file)
      $stdout.puts JSON.generate(done)
      $stdout.flush
      exit!(0)
    RUBY
  end

  it "goes on without the function of a C extension that crashes" do
    expect(dump_with_mark_functions("abort")).to include(unread_types: 1)
    unread = lines(path("x.ndjson")).select { |line| line["unread"] }
    expect(unread.map { |line| line["type"] }).to eq(%w[DATA])
  end

  it "goes on without the functions of C extensions that hang or crash", :long do
    expect(dump_with_mark_functions("pause", "abort")).to include(unread_types: 2)
  end

  it "is made by two threads at once, while the program forks, and while other threads are in malloc" do
    found = answer(<<~RUBY)
      require "openssl"
      $stop = false
      threads = Array.new(2) { Thread.new { OpenSSL::PKCS5.pbkdf2_hmac("a", "b", 2000, 32, "sha256") until $stop } }
      forks = Thread.new { Array.new(10) { pid = fork { exit!(0) }; sleep 0.02; Process.wait(pid); $?.success? } }
      done = Array.new(2) { |i| Thread.new { Array.new(2) { Memintro.heap_dump("\#{file}\#{i}")[:objects] } } }.flat_map(&:value)
      $stop = true
      threads.each(&:join)
      puts JSON.generate(done: done, forks: forks.value)
    RUBY
    expect(found[:done].size).to eq(4)
    expect(found[:done]).to all(be > 10_000)
    expect(found[:forks]).to eq([true] * 10)
    expect(lines(path("x.ndjson0")).last).to include("root" => "end")
  end

  # The first object of a class of the extension is made while Ruby may let another thread run, which makes one too.
  it "is made by two threads at once as the first one" do
    found = answer(<<~'RUBY')
      TracePoint.new(:c_call) { |call| sleep(0.2) if call.method_id == :const_get }.enable
      done = Array.new(2) { |i| Thread.new { Memintro.heap_dump("#{file}#{i}")[:objects] } }.map(&:value)
      puts JSON.generate(done: done)
    RUBY
    expect(found[:done]).to match([be > 10_000, be > 10_000])
  end

  it "takes odd names and sizes: bytes that are no text, thousands of classes, a long string; and refuses Ractors" do
    found = answer(read_program("heap_dump/odd_names.rb"))
    expect(found[:several]).to all(be > 10_000)
    expect(found[:refused]).to include("2 Ractors are alive")
    all = lines(path("x.ndjson"))
    expect(all.last["objects"]).to eq(found[:stress][:objects])
    expect(all.map { |line| line["name"] }).to include("A\u{fffd}").or include("A\u00e9")
    expect(all.map { |line| line["bytesize"] }).to include(20_000_000)
  end

  # Ruby has some hundred encodings, most of them in libraries of their own, which it loads when it is asked about one.
  it "loads no library for encodings that no string has", :vm_long do
    found = answer(<<~'RUBY')
      loaded = ->() { $LOADED_FEATURES.grep(%r{/enc/}) }
      kept = ["\xA4\xA2".dup.force_encoding("EUC-JP"), "a".encode("UTF-16LE")]
      before = loaded.call
      Memintro.heap_dump(file, redact: false)
      puts JSON.generate(new: loaded.call - before, before: before.size)
    RUBY
    expect(found).to match(new: [], before: be >= 1)
    encodings = lines(path("x.ndjson")).map { |line| line["encoding"] }
    expect(encodings).to include("EUC-JP", "UTF-16LE")
  end

  # Two copies take pages of the heap in turns. Lines longer than a piece of the memory that they share stay whole.
  it "has each object once, those of a page together, from one copy or two" do
    found = answer(<<~'RUBY')
      kept = Array.new(50_000) { |i| [i, "s#{i}"] }
      long = Array.new(40) { |i| i.even? ? "l" * 1_500_000 : Array.new(60_000, kept[i]) }
      puts JSON.generate(Memintro.heap_dump(file, redact: false))
    RUBY
    addresses = File.foreach(path("x.ndjson")).filter_map { |line| line[/\A{"address":"(0x\h+)", .*}$/, 1]&.hex }
    expect([addresses.size, addresses.uniq.size]).to eq([found[:objects]] * 2)
    together = addresses.chunk_while { |one, other| one >> 16 == other >> 16 }.to_a
    expect(together.size).to eq(addresses.map { |address| address >> 16 }.uniq.size)
    expect(together).to all(satisfy { |some| some == some.sort })
    bytes = File.binread(path("x.ndjson"))
    expect(bytes.scan(%("value":"#{'l' * 1_500_000}")).size).to eq(20)
  end

  # What the parsers of heapy, sheap and harb ask of a line.
  it "is read by heapy, or as heapy, sheap and harb read lines", :vm_long do
    answer("kept = %w[a b]; puts JSON.generate(Memintro.heap_dump(file))")
    all = lines(path("x.ndjson"))
    objects, roots = all.partition { |line| line["type"] != "ROOT" }
    expect(roots.map { |line| line.values_at("root", "references") }).to all(match([be_a(String), be_a(Array)]))
    expect(objects.map { |line| line["address"] }).to all(match(/\A0x\h+\z/))
    expect(objects.map { |line| line["type"] }).to all(match(/\A[A-Z]+\z/))
    expect(objects.size).to eq(objects.map { |line| line["address"] }.uniq.size)
    addresses = objects.to_h { |line| [line["address"], true] }
    loose = all.flat_map { |line| line["references"] || [] }.uniq.reject { |address| addresses[address] }
    expect(loose.size).to be <= 5
    READERS.each do |name, (code, said)|
      next if Gem::Specification.find_all_by_name(name).empty?

      code = "gem '#{name}'; require 'set'; require '#{name}'; #{code}"
      read = run_command(RbConfig.ruby, "-e", code, path("x.ndjson"))
      expect(read.must_succeed.stdout).to include(said)
    end
  end

  # Gems that read dumps: what is asked of them, and what they must say.
  READERS = { "heapy" => ["Heapy::Analyzer.new(ARGV[0]).analyze", "Analyzing Heap"],
              "sheap" => ["heap = Sheap::Heap.new(ARGV[0]); klass = heap.class_named('Object').first; " \
                          "puts heap.find_path(heap.instances_of(klass).first).inspect", "ROOT"] }.freeze

  it "tells which line made each object that is tracked, and when" do
    done = answer(<<~RUBY)
      class Message; end
      Memintro.start(objects: true)
      kept = Array.new(400) { Message.new }
      3.times { GC.start }
      later = Array.new(300) { Message.new }
      puts JSON.generate(Memintro.heap_dump(file).merge(generation: GC.count))
    RUBY
    all = lines(path("x.ndjson"))
    expect(all.first).to include("root" => "memintro", "generation" => done[:generation])
    message = all.find { |line| line["type"] == "CLASS" && line["name"] == "Message" }["address"]
    found = all.select { |line| line["type"] == "OBJECT" && line["class"] == message }
    births = found.map { |line| line.values_at("file", "line", "generation") }.tally
    # A collection may begin between two of them.
    by_line = births.group_by { |(file, line, _), _| [file, line] }
    expect(by_line.transform_values { |counts| counts.sum(&:last) }).to eq(["-e", 3] => 400, ["-e", 5] => 300)
    generations = by_line.to_h { |(_, line), counts| [line, counts.map { |(_, _, born), _| born }.max] }
    expect(generations[3]).to be <= done[:generation] - 3
    expect(generations[5]).to be_between(generations[3] + 3, done[:generation])
    said = memintro("heap", "generations", path("x.ndjson")).must_succeed.stdout
    expect(said).to match(/generations?; most bytes, .* are of generation \d+/)
    expect(memintro("heap", "holders", "--class", "Message", "--older-than-gcs", "2", path("x.ndjson")).stdout)
      .to start_with("400 of 400 Message that outlived 2 collections")
    expect(memintro("heap", "histo", "--by", "line", path("x.ndjson")).must_succeed.stdout).to include("-e:5")
    answer("puts JSON.generate(Memintro.heap_dump(file))")
    expect(memintro("heap", "generations", path("x.ndjson")).stdout).to include("Memintro.start(objects: true)")
  end

  it "is asked of a running process, which answers others meanwhile", :vm_long do
    program = start_program("Memintro.listen; kept = Array.new(400_000) { |i| [i] }; puts :ready; sleep")
    said = memintro("heap-dump", program.pid, "-o", path("p.ndjson.zst")).must_succeed.stdout
    expect(said).to match(%r{\A#{@folder}/p.ndjson.zst: 4\d\d,\d{3} objects of process #{program.pid} \(-e\) in \d})
    expect(said).to match(/ of lines\), written in \d+\.\d+ s; it stood still for \d+\.\d+ ms$/)
    expect(said).to include("The contents of strings were left out; --no-redact writes them.")
    found = memintro("heap-dump", program.pid, "-o", path("q-%p"), "--json", "--no-redact").must_succeed
    expect(JSON.parse(found.stdout)).to include("path" => path("q-#{program.pid}"), "compression" => "plain",
                                                "redacted" => false)
    expect(memintro("heap-dump", program.pid, "-o", path("none/x")).stderr)
      .to include("none: No such file or directory")
    expect(memintro("heap-dump", program.pid).stderr).to include("give a file with -o")
    expect(Dir.children(@folder).size).to eq(2)
  end

  it "is compressed as requested, with progress on a terminal", :vm_long do
    program = start_program("Memintro.listen; kept = Array.new(3_000_000) { |i| [i] }; puts :ready; sleep")
    file = path("t.ndjson")
    small = memintro("heap-dump", program.pid, "-o", file, "--compress", "gzip", "--json").must_succeed
    expect(JSON.parse(small.stdout)).to include("compression" => "gzip", "objects" => be > 3_000_000)
    expect(File.binread(file, 2)).to eq("\x1f\x8b".b)
    wrong = memintro("heap-dump", program.pid, "-o", path("wrong"), "--compress", "xz")
    expect([wrong.status.exitstatus, wrong.stderr]).to match([2, /invalid argument: --compress xz/])
    command = [RbConfig.ruby, Subprocess::EXE, "heap-dump", program.pid.to_s, "-o", path("u.ndjson.gz")]
    Terminal.open(*command, env: listening_env) do |terminal|
      terminal.wait_for("status 0, terminal as before")
      shown = terminal.raw[/\A.*(?=\r\e\[K)/m].split("\r").drop(1)
      expect(shown).to all(match(/\Aprocess #{program.pid}: [\d,]+ objects\z/))
      expect(shown.size).to be > 1
      expect(terminal.screen.lines.first).to start_with(path("u.ndjson.gz")[0, 60])
    end
    expect(Dir.children(@folder).sort).to eq(%w[t.ndjson u.ndjson.gz])
  end

  it "is written under GC.stress, and after a compaction", :long do
    found = answer(<<~RUBY)
      GC.stress = true
      stressed = Memintro.heap_dump(file)[:objects]
      GC.stress = false
      GC.respond_to?(:compact) && GC.compact
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      3.times { GC.start }
      puts JSON.generate([stressed, Memintro.heap_dump(file)[:objects]])
    RUBY
    expect(found).to all(be > 10_000)
    expect(lines(path("x.ndjson")).last["objects"]).to eq(found.last)
  end

  it "is written 200 times among threads in malloc", :long do
    found = answer(<<~RUBY)
      require "zlib"
      $stop = false
      threads = Array.new(8) { Thread.new { Zlib.crc32(("x" * rand(200_000)).unpack1("a*")) until $stop } }
      puts JSON.generate(Array.new(200) { Memintro.heap_dump(file).fetch(:unread_types) }.sum)
      $stdout.flush
      exit!(0)
    RUBY
    expect(found).to eq(0)
  end
end
