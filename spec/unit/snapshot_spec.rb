# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro"
require "etc"
require "timeout"

RSpec.describe Memintro::Snapshot do
  around { |example| Dir.mktmpdir { |folder| @folder = folder and Timeout.timeout(60) { example.run } } }

  let(:path) { File.join(@folder, "snapshot.json") }

  def full
    snapshot(classes: { "String" => [10, 400], "Aé" => [2, 80] }, iseqs: { "/app/\xE9\xFF.rb".b => [5, 1_000] },
             types: { "T_STRING" => [10, nil] }, sites: { "/app/b\xFFd.rb:3".b => [500, 5], "/app/a.rb:1" => [90, 9] })
  end

  describe "a light one of this process" do
    subject(:light) { Memintro.snapshot }

    it "has the memory, every counter of the GC, the time, the pid and the versions" do
      before = GC.stat
      expect(light.gc.keys).to eq(GC.stat.keys)
      %i[count total_allocated_objects total_freed_objects].each do |name|
        expect(light.gc[name]).to be_between(before[name], GC.stat(name)), name.to_s
      end
      expect(light.process).to include(pid: Process.pid, ruby: RUBY_VERSION, memintro: Memintro::VERSION)
      expect(light.time).to be_within(60).of(Time.now)
      expect(light.time.utc_offset).to eq(0)
      expect([light.parts, light.classes, light.iseqs, light.call_sites]).to eq([[], nil, nil, []])
      expect(light.totals).to be_nil
    end

    it "has every counter of each size of slot where Ruby has them" do
      heaps = GC.stat_heap.transform_values(&:keys) if GC.respond_to?(:stat_heap)
      expect(light.gc_heaps&.transform_values(&:keys)).to eq(heaps)
    end

    it "has those figures of memory that cost next to nothing, and with :pss the other two" do
      # The most that it had is another figure than what it has.
      ("x" * (64 << 20)).clear
      cheap = %i[rss_bytes peak_rss_bytes swap_bytes vsize_bytes]
      expect(light.memory.keys).to eq(cheap)
      resident = File.read("/proc/self/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE)
      expect(light.memory[:rss_bytes]).to be_within(8 << 20).of(resident)
      expect(light.memory.values_at(:peak_rss_bytes, :vsize_bytes)).to all(be > light.memory[:rss_bytes] + (8 << 20))
      asked = Memintro.snapshot(:pss)
      expect([asked.memory.keys, asked.missing]).to eq([[*cheap, :pss_bytes, :uss_bytes], {}])
      # The second of two readings: more memory may be touched by then.
      expect(asked.memory[:uss_bytes]).to be_between(1 << 20, asked.memory[:pss_bytes] + (8 << 20))
      expect(asked.memory[:pss_bytes]).to be <= asked.memory[:rss_bytes] + (8 << 20)
    end

    it "has the container's limit, where there is one" do
      names = %i[version path limit_bytes]
      expect(light.cgroup&.slice(*names)).to eq(Memintro.cgroup&.to_h&.slice(*names))
      allow(Memintro).to receive(:cgroup).and_return(nil)
      expect(Memintro.snapshot.cgroup).to be_nil
    end

    it "is frozen, with its contents" do
      expect(light).to be_frozen
      expect([light.gc, light.memory, light.process, light.missing, light.parts]).to all(be_frozen)
    end

    it "asks for nothing that walks the heap" do
      expect(Memintro::HeapSurvey).not_to receive(:take)
      expect(Memintro).not_to receive(:pss)
      light
    end
  end

  it "refuses an unknown part and names those there are" do
    expect { Memintro.snapshot(:klasses) }.to raise_error(ArgumentError, /:klasses; it must be one of :all, :pss/)
    expect { Memintro.snapshot(3) }.to raise_error(TypeError, /part is 3/)
  end

  it "takes the parts in their own order and each once" do
    expect(Memintro.snapshot(:types, "sites", :types).parts).to eq(%i[sites types])
  end

  it "counts objects by type" do
    kept = Array.new(5_000) { Object.new }
    found = Memintro.snapshot(:types).types.find { |row| row.name == "T_OBJECT" }
    expect(found.count).to be_between(5_000, ObjectSpace.count_objects[:T_OBJECT] + 5_000)
    expect(found.bytes).to be_nil
    kept.clear
  end

  describe "without what the system has to give" do
    before do
      %i[rss peak_rss swap vsize].each do |name|
        allow(Memintro).to receive(name).and_raise(Memintro::UnsupportedError, "there is no /proc here\nat all")
      end
    end

    it "still works when it is light, and says what is missing" do
      light = Memintro.snapshot
      expect(light.memory).to eq({})
      expect(light.missing).to include(rss_bytes: "there is no /proc here", vsize_bytes: "there is no /proc here")
      expect(light.inspect).to include("missing rss_bytes")
      expect(Memintro::Diff.new(light, light).to_s).to include("Nothing has changed.")
    end

    it "raises for a part that was named, and does without it for :all" do
      error = Memintro::Error.new("several Ractors run")
      allow(Memintro::MainRactor).to receive(:alone).and_raise(error)
      expect { Memintro.snapshot(:classes) }.to raise_error(error)
      allow(Memintro).to receive(:pss).and_raise(Memintro::ProcError, "there is no /proc here\nat all")
      expect { Memintro.snapshot(:pss) }.to raise_error(Memintro::ProcError, /there is no/)
      expect(Memintro.snapshot(:all).missing).to include(pss_bytes: "there is no /proc here")
      found = Memintro.snapshot(:all)
      expect(found.missing).to include(classes: "several Ractors run", iseqs: "several Ractors run")
      expect([found.classes, found.iseqs, found.types, found.internals, found.occupancy]).to all(be_nil)
    end
  end

  describe "tracking" do
    include_context "with a fake native"

    it "keeps the call sites with most live bytes and how many are left out" do
      stub_const("Memintro::Snapshot::Parts::SITES", 2)
      light = Memintro.snapshot
      expect(light.call_sites.map(&:name)).to eq(["/app/leak.rb:12", "libz.so.1(deflateInit2_+0x9c)"])
      expect(light.call_sites_left_out).to eq(2)
      expect(light.totals.live_bytes).to eq(51_204_000)
      expect(Memintro.snapshot(:sites).call_sites.size).to eq(4)
    end

    it "takes nothing for tracked that was not" do
      native.tracking = false
      native.figures = [0, 0, 0, 0, 0, 0, 0, 0, 7]
      native.rows = []
      expect(Memintro.snapshot.tracked?).to be(false)
    end
  end

  describe "#inspect" do
    it "is short for any process" do
      names = Array.new(3_000) { |i| ["Class#{"é\xFF" * 400}#{i}", [i, i * 40]] }.to_h
      big = snapshot(classes: names, iseqs: names, internals: names, sites: names.transform_keys { |name| "#{name}:1" })
      expect(big.inspect.bytesize).to be <= 2048
      expect(big.inspect).to be_valid_encoding
      expect(big.inspect).to include("pid 4711", "rss 50.0 MiB", "10 GCs", "classes")
    end
  end

  describe "#[]" do
    it "answers by name all that to_h has" do
      one = full
      expect(one[:memory]).to equal(one.memory)
      expect(one["classes"]).to equal(one.classes)
      expect(described_class::ATTRIBUTES).to eq(one.to_h.keys.sort_by { |key| described_class::ATTRIBUTES.index(key) })
      expect(described_class::ATTRIBUTES.map { |name| one[name] }).to include(one.gc, one.totals)
      expect { one[:rss] }.to raise_error(ArgumentError, /Memintro::Snapshot has no :rss; it has time, .*memory/)
    end
  end

  it "has lists that do not flood a console, with any contents" do
    names = Array.new(3_000) { |i| ["Class#{i}", [i, i * 40]] }.to_h
    big = snapshot(classes: names, iseqs: names, internals: names, sites: names.transform_keys { |name| "#{name}:1" })
    lists = [big.classes, big.internals, big.iseqs[:paths], big.iseqs[:locations], big.call_sites]
    expect(lists).to all(be_a(Memintro::List))
    expect([*lists, big.iseqs].map { |list| list.inspect.bytesize }).to all(be < 20_000)
    expect(described_class.take([:internals, :classes]).internals).to be_a(Memintro::List)
    occupied = described_class.take([:occupancy]).save(path)
    pages = [occupied, described_class.load(path)].flat_map { |one| one.occupancy.values_at(:pools, :holders) }
    expect(pages).to all(be_a(Memintro::List))
    expect(occupied.to_h[:occupancy].values_at(:pools, :holders)).to all(be_an_instance_of(Array))
    grown = big - snapshot(classes: {}, iseqs: {}, internals: {}, sites: {})
    expect(grown.sections.values).to all(be_a(Memintro::List))
    expect(grown.sections.inspect.bytesize).to be_between(10_000, 60_000)
  end

  describe "#save" do
    it "gives back the same by load, with any bytes in names" do
      full.save(path)
      loaded = described_class.load(path)
      expect(loaded.to_h).to eq(full.to_h)
      expect(loaded.iseqs[:paths].first.name).to eq("/app/\xE9\xFF.rb".b)
      expect(loaded.call_sites.first.name.b).to eq("/app/b\xFFd.rb:3".b)
      expect((loaded - full).sections.values).to all(be_empty)
    end

    it "writes JSON that any reader reads, with its layout first, for the owner alone" do
      full.save(path)
      expect(File.read(path)).to start_with("{\"memintro_snapshot\":1,")
      expect(JSON.parse(File.read(path))).to include("memintro_snapshot" => 1, "gc" => include("count" => 10))
      expect(JSON.parse(full.to_json)).to eq(JSON.parse(File.read(path)))
      expect(File.stat(path).mode & 0o777).to eq(0o600)
      expect(Dir.children(@folder)).to eq(["snapshot.json"])
    end

    it "names the file that cannot be written, and leaves nothing behind" do
      { File.join(@folder, "none", "s.json") => "No such file or directory", @folder => "Is a directory",
        "/dev/full" => "No space left on device" }.each do |wrong, reason|
          expect { full.save(wrong) }.to raise_error(Memintro::SnapshotError, "#{wrong} cannot be written: #{reason}")
        end
      expect(Dir.children(@folder)).to eq([])
      expect { full.save(3) }.to raise_error(TypeError, /path is 3/)
      expect { full.save("") }.to raise_error(Memintro::SnapshotError, /\A"" .* cannot be written: No such file/)
      expect { described_class.load("") }.to raise_error(Memintro::SnapshotError, /\A"" .* cannot be read: No such/)
    end

    it "names a path that can be no file's, when it is read as well" do
      ["a\0b", "a".encode("UTF-16LE")].each do |wrong|
        shown = /\A#{Regexp.escape(wrong.inspect)} cannot be/
        expect { full.save(wrong) }.to raise_error(Memintro::SnapshotError, shown)
        expect { described_class.load(wrong) }.to raise_error(Memintro::SnapshotError, shown)
      end
    end

    it "replaces a link, wherever it leads, as a process's report does" do
      precious = File.join(@folder, "precious").tap { |file| File.write(file, "precious") }
      [precious, File.join(@folder, "nowhere")].each do |target|
        File.symlink(target, path)
        full.save(path)
        expect([File.lstat(path).file?, described_class.load(path).pid]).to eq([true, 4711])
        File.unlink(path)
      end
      expect(File.read(precious)).to eq("precious")
      expect(Dir.children(@folder)).to eq(["precious"])
    end

    it "writes into a stream of the process and a named pipe, and puts nothing in their places" do
      File.open(path, "w") do |file|
        file.write("before\n")
        file.flush
        full.save("/proc/self/fd/#{file.fileno}")
        expect(File.read(path)).to start_with("before\n{\"memintro_snapshot\"")
      end
      pipe = File.join(@folder, "pipe").tap { |name| File.mkfifo(name) }
      reader = Thread.new { described_class.load(pipe) }
      full.save(pipe)
      expect(reader.join(30)&.value&.to_h).to eq(full.to_h)
      expect(Dir.children(@folder)).to contain_exactly("pipe", "snapshot.json")
    end

    it "leaves the old file when the disk is full" do
      full.save(path)
      before = File.binread(path)
      allow_any_instance_of(File).to receive(:write).and_raise(Errno::ENOSPC)
      expect { snapshot.save(path) }.to raise_error(Memintro::SnapshotError, /#{path} cannot be written: No space left/)
      expect(File.binread(path)).to eq(before)
      expect(Dir.children(@folder)).to eq(["snapshot.json"])
    end

    it "leaves no half file where an exception comes in between" do
      allow_any_instance_of(File).to receive(:fsync).and_raise(Interrupt)
      expect { full.save(path) }.to raise_error(Interrupt)
      expect(Dir.children(@folder)).to eq([])
    end
  end

  describe ".load" do
    def loading(text)
      File.binwrite(path, text)
      described_class.load(path)
    end

    it "says what is wrong with a file, and which" do
      text = full.to_json
      { text[0, text.size / 2] => "was cut short or damaged", "" => "is empty",
        "RIFF\x00" => "its first bytes are different",
        "{\"a\": [1, 2" => "is not valid JSON", "{\"a\": 1}" => "it is other JSON",
        "{\"version\":1,\"call_sites\":[]}" => "a report, which `memintro report` shows",
        text.sub(":1,", ":2,") => "layout 2, and memintro 0.1.0 reads layout 1",
        text.sub("\"gc\":", "\"cg\":") => "is a damaged snapshot",
        "{\"memintro_snapshot\":1}" => "is a damaged snapshot",
        text.sub("\"pid\"", "\xFF") => "cut short or damaged" }.each do |wrong, reason|
        expect { loading(wrong) }.to raise_error(Memintro::SnapshotError, /\A#{path} .*#{Regexp.escape(reason)}/)
      end
    end

    it "says which value is of another type, before anybody computes with it" do
      integer = "an Integer from #{-(2**63)} to #{(2**63) - 1}"
      { ["\"rss_bytes\":52428800", "\"rss_bytes\":\"9\""] => "memory.rss_bytes is \"9\"; it must be #{integer}",
        [/"memory":\{.*?\}/m, "\"memory\":[1]"] => "memory is a list; it must be an object",
        [/"gc":\{.*?\}/m, "\"gc\":null"] => "gc is missing",
        ["\"cgroup\":null", "\"cgroup\":\"x\""] => 'cgroup is "x"; it must be an object',
        ["\"missing\":{}", "\"missing\":[1]"] => "missing is a list; it must be an object",
        ["\"tracking\":true", "\"tracking\":\"x\""] => 'process.tracking is "x"; it must be true or false',
        [/(?<=99.rb|\}),"count":5/, ",\"count\":[5]"] => "iseqs.paths[0].count is a list; it must be #{integer}" }
        .each do |(from, to), reason|
          text = full.to_json
          expect(wrong = text.sub(from, to)).not_to eq(text)
          expect { loading(wrong) }
            .to raise_error(Memintro::SnapshotError, "#{path} is a damaged snapshot of memintro: #{reason}")
        end
    end

    it "reads no further where it begins as something else, which need not end" do
      allow_any_instance_of(File).to receive(:read).and_wrap_original do |read, most = nil|
        raise NoMemoryError, "read to its end" unless most

        read.call(most)
      end
      { "/dev/zero" => "its first bytes are different", "/dev/null" => "is empty" }.each do |device, reason|
        expect { described_class.load(device) }.to raise_error(Memintro::SnapshotError, /\A#{device} .*#{reason}/)
      end
    end

    it "reads no pipe without end" do
      stub_const("Memintro::Snapshot::Saved::MOST", 1 << 16)
      reader, writer = IO.pipe
      endless = Thread.new { loop { writer.write("{" * 4096) } }
      expect { described_class.load("/proc/self/fd/#{reader.fileno}") }
        .to raise_error(Memintro::SnapshotError, /is not a snapshot of memintro: it is larger than 64.0 KiB/)
    ensure
      endless&.kill&.join(30)
      [reader, writer].each { |io| io&.close }
    end

    it "reads one that an editor has put a byte order mark and white space in front of" do
      expect(loading("\uFEFF\n \t\r#{full.to_json}").to_h).to eq(full.to_h)
    end

    it "survives any single byte that is missing or changed" do
      text = full.to_json
      random = Random.new(5)
      400.times do
        wrong = text.dup.b
        wrong[random.rand(text.bytesize)] = [random.rand(256).chr.b, ""].sample(random: random)
        begin
          loaded = loading(wrong)
          expect((full - loaded).to_s).to be_a(String)
          expect(loaded.inspect).to be_a(String)
        rescue Memintro::SnapshotError => e
          expect(e.message).to start_with(path)
        end
      end
    end

    it "names a file that is not there or is a folder" do
      expect { described_class.load(path) }
        .to raise_error(Memintro::SnapshotError, "#{path} cannot be read: No such file or directory")
      expect { described_class.load(@folder) }.to raise_error(Memintro::SnapshotError, /Is a directory/)
      expect { described_class.load(nil) }.to raise_error(TypeError, /path is nil/)
    end
  end

  it "can be subtracted from another only" do
    expect { full - 3 }.to raise_error(TypeError, "3 is not a Memintro::Snapshot")
    expect(snapshot - full).to be_a(Memintro::Diff)
  end
end
