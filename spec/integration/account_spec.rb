# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"

RSpec.describe "an account of RSS", :vm do
  JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"

  # Free bytes of bins, of the top and of fast bins are those that malloc itself counts.
  it "agrees with malloc_info", :vm_long do
    result = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
      kept = Array.new(100_000) { |n| "x" * (100 + (n % 900)) }
      kept.each_index { |n| kept[n] = nil if n.odd? }
      GC.start
      free = Memintro.account[:malloc_free]
      pages = free.details.slice(:bins_bytes, :top_bytes, :tcache_bytes, :fast_bins_bytes)
      puts JSON.generate(bytes: free.bytes, says: free.details[:allocator_says], pages: pages)
    RUBY
    says = result[:says].values_at(:rest, :fast).sum
    walked = result[:pages].values_at(:bins_bytes, :top_bytes, :fast_bins_bytes).sum
    # Not all of the free memory is resident, and the copy was made before malloc was asked.
    expect(walked).to be_within(says / 8).of(says)
    expect(result[:bytes]).to eq(result[:pages].values.sum)
  end

  # The kernel makes one mapping of neighbours, so the first page of the string's block need not be among those of a
  # mapping over which resident pages are spread evenly: the block must be found all the same.
  it "adds up where the kernel does not show which pages are resident", :vm_long do
    result = run_ruby(code: <<~'RUBY', requires: %w[json memintro]).must_succeed.json
      kept = "x" * 50_000_000
      Memintro.account
      account = Memintro::Account::Copying.take(ruby: true, pagemap: false, seconds: 10)
      sizes = File.read("/proc/self/smaps").scan(/^Size: +(\d+) kB\n.*\n.*\nRss: +(\d+) kB/)
      size, rss = sizes.map { |pair| pair.map(&:to_i) }.max_by(&:last)
      puts JSON.generate(rss: account.rss, sum: account.rows.sum(&:bytes), notes: account.notes, share: rss.fdiv(size),
                         basis: account.rows.map(&:basis).uniq, objects: account[:malloc_ruby_objects].bytes)
    RUBY
    expect(result[:sum]).to eq(result[:rss])
    expect(result[:notes].first).to include("does not show which pages are resident")
    expect(result[:basis]).to include("estimated")
    expect(result[:objects]).to be > 47_500_000 * result[:share]
  end

  # A chunk whose size was overwritten ends the walk of its heap, and nothing else.
  it "reports a damaged heap, and lives", :vm_long do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      blocks = Array.new(50_000) { Fiddle.malloc(500) }
      Memintro.account
      at = Fiddle::Pointer.new(blocks[25_000] - 8, 8)
      before = at[0, 8]
      at[0, 8] = [0xdead_beef_dead_beef].pack("Q")
      account = Memintro::Account::Copying.take(ruby: true, pagemap: true, seconds: 10)
      at[0, 8] = before
      puts JSON.generate(rss: account.rss, sum: account.rows.sum(&:bytes), notes: account.notes,
                         unattributed: account[:unattributed].bytes)
    RUBY
    expect(result[:sum]).to eq(result[:rss])
    expect(result[:notes].join).to include("malloc's memory could not be read to its end in 1 places")
    expect(result[:unattributed]).to be_between(8_000_000, 20_000_000)
  end

  # Ruby follows a wrong pointer of an object, and ends the copy alone.
  it "lives where an object is damaged, and says what is missing" do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed
      table = (1..100).to_h { |n| [n, n] }
      Memintro.account
      GC.disable
      at = Fiddle::Pointer.new(Fiddle.dlwrap(table) + 16, 8)
      before = at[0, 8]
      at[0, 8] = [16].pack("Q")
      account = Memintro.account
      at[0, 8] = before
      puts JSON.generate(rss: account.rss, sum: account.rows.sum(&:bytes), notes: account.notes)
    RUBY
    expect(result.json[:sum]).to eq(result.json[:rss])
    expect(result.json[:notes].join).to include("could not be asked for their sizes") if RUBY_VERSION < "3.3"
    expect(result.stderr).to eq("")
  end

  # What madvise keeps from copies is in RSS too; locked memory must not have the answer's room resident; a terabyte
  # with few pages takes no time; and thousands of mappings of one file take one line.
  it "counts what the kernel keeps from copies, locked and sparse memory", :vm_long do
    code = read_program("account/kept_mappings.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(result).to include(sums: [0, 0], notes: [])
    expect(result[:missing].abs).to be < 4 << 20
    expect(result[:anonymous]).to be_between(40 << 20, 60 << 20)
    expect(result[:grown]).to be < 8 << 20
    expect(result[:took]).to be < 2
    expect(result[:lines]).to be < 20
  end

  # The kernel would choose which process of a full container to end, and may end all.
  it "makes no copy in a container that is full", :vm_long do
    result = run_ruby(code: <<~RUBY, requires: %w[memintro]).must_succeed.stdout
      Memintro.account
      group = Memintro::Cgroup.new(version: 2, path: "/full", limit_bytes: 100 << 20, usage_bytes: 99 << 20,
                                   reclaimable_bytes: 0)
      begin
        Memintro::Account::Copying.take(ruby: true, pagemap: true, seconds: 10, cgroup: group)
      rescue Memintro::AccountError => e
        puts e.message
      end
    RUBY
    expect(result).to start_with("the container's memory is full but for 1.0 MiB (/full), and the copy of this process")
  end

  it "stands in snapshots, their files and diffs, and free memory in MEMORY lines" do
    code = read_program("account/snapshot.rb")
    result = run_ruby(code: code, requires: %w[json tmpdir stringio memintro]).must_succeed.json
    expect(result[:keys].map(&:to_sym)).to eq(Memintro::Account::NAMES)
    expect(result[:sum]).to eq(result[:rss])
    expect(result[:grown]).to match(["malloc_ruby_objects", be_between(33_000_000, 42_000_000)])
    expect(result[:text]).to match(/^resident memory by what it is for/).and match(/\+3\d\.\d MiB.*malloc_ruby_objects/)
    written = JSON.parse(result[:lines][:json])["fragmentation_bytes"]
    expect([result[:free], written]).to all(be > 25_000_000)
    expect(result[:lines][:article]).to match(/, fragmentation: [23]\d\.\d MB$/)
    expect(result[:parts]).to eq([nil, 12])
  end

  it "counts stacks of threads and fibers, made code, and call sites" do
    result = run_ruby(code: read_program("account/stacks.rb"), requires: %w[json fiddle memintro]).must_succeed.json
    before, after = result[:stacks]
    # A thread may take the stack that an ended one left, which was counted before.
    count = after[:threads][:count] - before[:threads][:count]
    expect(count).to be_between(38, 40)
    # 1,500 levels take 120 bytes of Ruby's own stack each at least, 1 MiB at most. From 3.3 on, malloc has that stack.
    least = RUBY_VERSION < "3.3" ? 120 * 1500 : 4096
    expect(after[:threads][:bytes] - before[:threads][:bytes]).to be_between(count * least, 40 << 20)
    expect(after[:fibers][:bytes] - before[:fibers][:bytes]).to be_between(20 * 100 * 400, 20 << 20)
    expect(result[:code]).to eq([result[:code][0], result[:code][0] + (4 << 20)])
    expect(result[:site]).to include(name: "-e:12", live_bytes: be_between(3_000_000, 3_001_000))
  end

  # Children, signals and descriptors of the program are its own.
  it "does not show its copy to the program" do
    result = run_ruby(code: read_program("account/hidden_copy.rb"), requires: %w[json memintro]).must_succeed.json
    expect(result).to eq(signals: 0, seen: 0, left: 0, descriptors: 0, sums: [0] * 5)
  end

  # What heaps grow by in a child of fork are mappings of their own. A shared mapping that ends where a heap begins
  # is no data of a library that goes on there.
  it "walks the heaps of a forked process to their end", :vm_long do
    code = read_program("account/forked_process.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(result).to include(sum: result[:rss], notes: [], unattributed: 0)
    expect(result).to include(shared: be > 3, scanned: be > 15_000)
    # Five times 3,000 strings of 1,600 bytes; one may be missing.
    expect(result[:objects]).to be > 19_000_000
  end

  it "gives free memory back", :vm_long do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      blocks = Array.new(60_000) { Fiddle.malloc(1000) }
      blocks.each { |block| Fiddle::Pointer.new(block)[0, 1000] = "x" * 1000 }
      last = Fiddle.malloc(1000)
      blocks.each { |block| Fiddle.free(block) }
      said = Memintro.account(ruby: false)[:malloc_free].details[:trimmable_bytes]
      puts JSON.generate(**Memintro.trim, said: said)
    RUBY
    expect(result[:said]).to be_within(3 << 20).of(result[:given_back_bytes])
    expect(result[:given_back_bytes]).to be > 40_000_000
    expect(result[:rss]).to eq(result[:rss_before] - result[:given_back_bytes])
  end

  it "shows a process from outside, alone and through its socket", :vm_long do
    child = "GC.start; kept = %q(x) * 30_000_000; Memintro.listen if ARGV[0]; puts 1; $stdout.flush; sleep"
    outputs = [[], ["listen"]].map do |arguments|
      IO.popen([RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", child, *arguments]) do |io|
        io.gets
        shown = Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "account", "--json", io.pid.to_s)
        JSON.parse(shown.must_succeed.stdout, symbolize_names: true)
      ensure
        Process.kill(:KILL, io.pid)
      end
    end
    outputs.each { |output| expect(output[:rows].sum { |row| row[:bytes] }).to eq(output[:rss]) }
    alone, asked = outputs.map { |output| output[:rows].to_h { |row| [row[:name], row[:bytes]] } }
    expect(alone.fetch("anonymous")).to be > 30_000_000
    expect(outputs[0][:notes].first).to include("from the kernel's list of mappings alone")
    expect(asked.fetch("malloc_ruby_objects")).to be_between(29_000_000, 36_000_000)
  end

  it "runs a command once per allocator, and says which answered", :vm_long do
    result = Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "allocators", "--", RbConfig.ruby, "--disable=gems",
                                    "-e", "$kept = 'x' * 40_000_000; sleep 0.2")
    lines = result.must_succeed.stdout.lines(chomp: true)
    names = lines.grep(/ s /).to_h { |line| [line[/\A\w+(?:, 2 arenas)?/], line.split.last] }
    expect(names).to include("glibc" => "glibc", "glibc, 2 arenas" => "glibc")
    expect(names["jemalloc"]).to eq("jemalloc") if File.exist?(JEMALLOC)
    peaks = lines.grep(/ s /).map { |line| Float(line[/([\d.]+) MiB/, 1]) }
    expect(peaks).to all(be_between(38, 90))
    live = lines.grep(/ s /).map { |line| Float(line[/([\d.]+) MiB  \w+\z/, 1]) }
    expect(live).to all(be_between(38.1, 48))
  end

  it "runs the rounds of allocators interleaved, with the environment of each", :vm_long do
    Dir.mktmpdir do |folder|
      log = File.join(folder, "log")
      code = "File.write(#{log.inspect}, ENV.values_at('LD_PRELOAD', 'MALLOC_ARENA_MAX').inspect + %q(\n), mode: 'a')"
      run_memintro("allocators", "--no-live", "--rounds", "2", "--", RbConfig.ruby, "-e", code).must_succeed
      runs = File.readlines(log)
      expect(runs.size).to be >= 4
      expect(runs.take(2)).to eq(["[nil, nil]\n", "[nil, \"2\"]\n"])
      expect(runs.drop(runs.size / 2)).to eq(runs.take(runs.size / 2))
    end
  end

  # Each allocator's own statistics, as it calls them.
  { "jemalloc" => ["libjemalloc.so.2", %w[allocated active metadata resident mapped retained]],
    "tcmalloc" => ["libtcmalloc_minimal.so.4", %w[allocated heap unmapped page_heap_free central_cache_free
                                                  thread_cache_free]],
    "mimalloc" => ["libmimalloc.so.{3,2}",
                   %w[committed thread_committed thread_allocated]] }.each do |name, (file, figures)|
    it "asks #{name} for its own statistics, and says what is not known", :vm_long do
      library = Dir.glob("/usr/lib/*-linux-gnu/#{file}").first
      skip "no #{name} here" unless library

      result = run_ruby(code: <<~RUBY, requires: %w[json memintro], env: { "LD_PRELOAD" => library }).must_succeed.json
        kept = Array.new(40_000) { "x" * 1000 }
        account = Memintro.account
        puts JSON.generate(rss: account.rss, sum: account.rows.sum(&:bytes), allocator: account.allocator,
                           says: account[:malloc_free].details[:allocator_says], notes: account.notes,
                           known: account[:malloc_free].details[:inside_known],
                           objects: account[:malloc_ruby_objects].bytes, unattributed: account[:unattributed].bytes)
      RUBY
      expect(result).to include(allocator: name, sum: result[:rss], unattributed: 0)
      expect(result[:says].keys.map(&:to_s)).to eq(figures)
      expect(result[:says].values.first).to be_between(40_000_000, 500_000_000)
      expect(result[:objects]).to be_between(40_000_000, 56_000_000)
      known = name != "mimalloc"
      expect(result[:known]).to be(known)
      expect(result[:notes]).to eq(known ? [] : ["the inside of mimalloc is known of the heap of the thread that " \
                                                 "asked alone: free memory of others counts as in use"])
    end

    # 90% of 86 MB are freed in the thread that asks. Ruby 3.3 keeps shorter strings in their slots.
    it "says in words what #{name} has free, and has it give that back", :vm_long do
      library = Dir.glob("/usr/lib/*-linux-gnu/#{file}").first
      skip "no #{name} here" unless library

      env = { "LD_PRELOAD" => library, "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }
      result = run_ruby(code: <<~RUBY, requires: %w[json memintro], env: env).must_succeed.json
        kept = Array.new(75_000) { |n| "x" * (700 + (n % 900)) }
        kept.each_index { |n| kept[n] = nil unless (n % 10).zero? }
        GC.start
        account = Memintro.account
        shown = Thread.new { Memintro.account }.value
        puts JSON.generate(verdict: account.verdict.first, rows: account.rows.to_h { |row| [row.name, row.bytes] },
                           basis: account[:malloc_free].basis, rss: account.rss, other: shown.verdict.first,
                           trimmed: Memintro.trim)
      RUBY
      expect(result[:rows][:malloc_free]).to be_between(60_000_000, 110_000_000)
      expect(result[:rows][:malloc_native]).to be < 25_000_000
      expect(result[:basis]).to eq("derived")
      expect(result[:verdict]).to match(/\A\d\d\.\d% of \d+\.\d MiB is memory that malloc has free but keeps: /)
        .and end_with("fragmentation. " \
                      "Memintro.trim gives back what it can.")
      expect(result[:trimmed][:rss]).to eq(result[:trimmed][:rss_before] - result[:trimmed][:given_back_bytes])
      # Another thread has its own heap, and mimalloc reports only that.
      said = name == "mimalloc" ? "free memory that the allocator does not tell apart, a leak in C" : "fragmentation"
      expect(result[:other]).to include(said)
    end
  end

  it "writes a page of its own, which has the rows of its treemap", :vm_long do
    result = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
      require "memintro/cli"
      require File.join(Memintro::Paths::CODE, "report/account_report")
      require "stringio"
      account = Memintro.account
      Memintro::AccountReport.new(account, name: "<b>").write(page = StringIO.new, format: :html)
      puts JSON.generate(page: page.string, rows: account.rows.to_h { |row| [row.name, row.bytes] })
    RUBY
    page = result[:page]
    expect(page).to include("&lt;b&gt;").and include("default-src 'none'")
    rows = JSON.parse(page[%r{id="data">(.*?)</script>}m, 1]).fetch("rows").to_h
    expect(rows.transform_keys(&:to_sym)).to eq(result[:rows])
  end
end
