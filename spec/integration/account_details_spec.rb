# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"
require_relative "../support/chromium"

RSpec.describe "details of an account", :vm do
  JEMALLOC_HERE = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"

  # Blocks are found by the pointers of objects, so that each row is counted page by page.
  it "tells blocks of objects from blocks of C, to the percent" do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      2.times { Memintro.account }
      before = Memintro.account
      strings = Array.new(20_000) { "x" * 1000 }
      table = 100_000.times.to_h { |n| [n, n] }
      blocks = Array.new(20_000) { Fiddle.malloc(1000).tap { |block| Fiddle::Pointer.new(block)[0, 1000] = "y" * 1000 } }
      GC.start
      after = Memintro.account
      grown = after.diff(before)
      puts JSON.generate(grown: grown.rows.to_h { |row| [row.name, row.bytes] }, basis: after.rows.map(&:basis).uniq,
                         types: after[:malloc_ruby_objects].details[:types].first(2))
    RUBY
    # 20,000 chunks of 1,008 and 1,016 bytes; the table's entries and bins, and the arrays.
    strings, table, arrays = 20_000 * 1008, (131_072 * 24) + (262_144 * 4), 2 * 20_000 * 8
    expect(result[:grown][:malloc_ruby_objects]).to be_within(1_200_000).of(strings + table + arrays)
    expect(result[:grown][:malloc_native]).to be_within(400_000).of(20_000 * 1008)
    expect(result[:basis]).to eq(["measured"])
    expect(result[:types].first).to include(name: "T_STRING", bytes: be_within(700_000).of(strings))
    expect(result[:types].last).to include(name: "T_HASH")
  end

  # The last word of a Hash's slot means nothing in Ruby 3.1: an old pointer there, to the table of another Hash, has
  # that table counted as the first one's. The table's contents are 40 MB.
  it "finds the blocks of a Hash behind a table that an old pointer of another object took" do
    skip "tables lie in slots" if RUBY_VERSION >= "3.3"

    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      slot = ->(object) { Fiddle::Pointer.new(Fiddle.dlwrap(object), 40) }
      # Slots are looked at in the order of their addresses.
      *thieves, table = Array.new(201) { |n| { a: n, b: 1, c: 2 } }.sort_by { |hash| slot[hash].to_i }
      1_000_000.times { |n| table[n] = n }
      GC.start
      GC.disable
      2.times { Memintro.account }
      before = Memintro.account
      block = slot[table][16, 8]
      thieves.each { |thief| slot[thief][32, 8] = block }
      after = Memintro.account
      thieves.each { |thief| slot[thief][32, 8] = [0].pack("Q") }
      puts JSON.generate(rows: [before, after].map { |one| [one[:malloc_ruby_objects].bytes, one[:malloc_native].bytes] })
    RUBY
    (objects, native), (objects_after, native_after) = result[:rows]
    expect(objects).to be > 30_000_000
    expect(objects_after).to be_within(300_000).of(objects)
    expect(native_after).to be_within(300_000).of(native)
  end

  # Freed blocks lie between live ones, so that no two pieces merge.
  it "says how many free pieces of each size malloc has", :vm_long do
    code = read_program("account_details/free_pieces.rb")
    before, after = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    bins = ->(one) { one[:bins].find { |row| row[:least_bytes] == 2048 } || { pieces: 0, bytes: 0 } }
    expect(bins[after][:pieces] - bins[before][:pieces]).to be_within(2).of(800)
    expect(bins[after][:bytes] - bins[before][:bytes]).to be_within(3 * 4096).of(800 * 3008)
    expect(bins[after][:most_bytes]).to eq(4095)
    # A cache has up to seven of each size; further small ones are in fast bins.
    expect(after[:tcache]).to include(piece_bytes: 1008, pieces: 7, bytes: 7 * 1008)
    # malloc takes a free piece of 96 as it is.
    fast = [before, after].map do |one|
      one[:fast_bins].sum { |row| [80, 96].include?(row[:piece_bytes]) ? row[:pieces] : 0 }
    end
    expect(fast[1] - fast[0]).to be_between(95, 110)
    expect(after[:fast_bins]).to all(satisfy { |row| row[:bytes] == row[:pieces] * row[:piece_bytes] })
    %i[bins fast_bins].each do |list|
      sums = %i[pieces bytes].map { |key| after[list].sum { |row| row[key] } }
      expect(sums).to eq(after.values_at(:"#{list}_pieces", :"#{list}_bytes"))
    end
    expect(after[:tcache].sum { |row| row[:bytes] }).to be_between(after[:tcache_bytes] / 3, after[:tcache_bytes])
  end

  it "names the call sites of each row, and counts its tables page by page" do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      2.times { Memintro.account }
      before = Memintro.account[:memintro].bytes
      Memintro.start
      strings = Array.new(10_000) { "x" * 1000 }
      blocks = Array.new(5_000) { Fiddle.malloc(2000) }
      code = Array.new(300) { |n| eval("def m\#{n}(a) = [a, \#{n}, a.to_s, a.size]") }
      account = Memintro.account
      rows = %i[malloc_ruby_objects malloc_native malloc_iseqs]
      puts JSON.generate(sites: rows.map { |row| account[row].details[:call_sites].first },
                         of: account[:malloc_native].details[:call_sites_of], notes: account.notes,
                         tables: account[:memintro].bytes - before, said: Memintro.totals.tracker_bytes)
    RUBY
    objects, native, iseqs = result[:sites]
    expect(objects).to include(name: "-e:4", live_blocks: be_between(10_000, 10_050))
    expect(native).to include(name: "-e:5", live_bytes: be_between(10_000_000, 10_020_000))
    expect(iseqs[:name]).to eq("-e:6")
    expect(result).to include(of: "malloc_native", notes: [])
    # The hook's own memory, a page table of blocks among it; no more than it has mapped, and its library's data.
    expect(result[:tables]).to be_between(200_000, result[:said] + (3 << 20))
  end

  it "says that the shares of malloc are derived where chunks are not known", :vm_long do
    skip "no jemalloc here" unless File.exist?(JEMALLOC_HERE)

    result = run_ruby(code: <<~RUBY, requires: %w[json memintro], env: { "LD_PRELOAD" => JEMALLOC_HERE })
      Memintro.start
      kept = Array.new(10_000) { "x" * 1000 }
      account = Memintro.account
      puts JSON.generate(basis: account.rows.to_h { |row| [row.name, row.basis] },
                         native: account[:malloc_native].details.slice(:call_sites, :call_sites_of),
                         objects: account[:malloc_ruby_objects].details[:call_sites])
    RUBY
    result = result.must_succeed.json
    expect(result[:basis]).to include(malloc_native: "derived", malloc_free: "derived", ruby_heap_live: "measured")
    expect(result[:native]).to include(call_sites_of: "all rows")
    expect(result[:native][:call_sites].first).to include(name: "-e:2", live_blocks: be_between(10_000, 10_050))
    expect(result[:objects]).to be_nil
  end

  it "stands in lines of requests and jobs on request, measured once for those who ask together" do
    code = read_program("account_details/fragmentation_lines.rb")
    result = run_ruby(code: code, requires: %w[json stringio memintro memintro/rack memintro/sidekiq]).must_succeed
    lines = result.json[:lines]
    expect(lines.size).to eq(4)
    expect(lines[0]).not_to include("fragmentation")
    figures = lines.drop(1).map { |line| Integer(line[/"?fragmentation_bytes"?[=:](\d+)/, 1]) }
    expect(figures).to all(be_between(25_000_000, 45_000_000))
    expect(lines[2]).to match(/"path":"\/a","fragmentation_bytes":\d+\}/)
    expect(lines[3]).to start_with("MEMORY job=A")
    expect(result.json[:wrong]).to eq("fragmentation is 1; it must be true or false")
    expect(result.json[:copies]).to be_between(1, 11)
  end

  it "is asked for from outside by watch and diff", :vm_long do
    child = "Memintro.listen; puts 1; $stdout.flush; loop { sleep 0.05; ($k ||= []) << 'x' * 1_000_000 }"
    IO.popen([RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", child]) do |io|
      io.gets
      diff = Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "diff", "--account", "--for", "1", "--json",
                                    io.pid.to_s)
      rows = JSON.parse(diff.must_succeed.stdout).dig("sections", "account")
      grown = rows.find { |row| row["name"] == "malloc_ruby_objects" }
      expect(grown["growth"]).to be_between(2_000_000, 40_000_000)
      asking = "require 'memintro/control'; require '#{Subprocess::LIB}/memintro/control/directory'; " \
               "listener = Memintro::Control::Directory.new(users: nil).find('#{io.pid}'); " \
               "ask = ->(with) { listener.client.ask_json('vitals', with) }; " \
               "puts JSON.generate([{}, { fragmentation: true }].map(&ask))"
      plain, more = run_ruby(code: asking, requires: %w[json memintro]).must_succeed.json
      expect(plain[:fragmentation_bytes]).to be_nil
      expect(more[:fragmentation_bytes]).to be_between(1, 10_000_000)
    ensure
      Process.kill(:KILL, io.pid)
    end
  end

  # Ruby counts 40 bytes for each of these numbers.
  it "says what objects lead to whose C extension tells Ruby no size, and what none leads to" do
    result = run_ruby(code: <<~'RUBY', requires: %w[fiddle json memintro openssl]).must_succeed.json
      text = "f" * 60_000
      first = Memintro.account[:malloc_native]
      KEPT = Array.new(800) { OpenSSL::BN.new(text, 16) }
      of_objects = Memintro.account
      libc = Fiddle.dlopen(nil)
      calloc = Fiddle::Function.new(libc["calloc"], [Fiddle::TYPE_SIZE_T] * 2, Fiddle::TYPE_SIZE_T)
      memset = Fiddle::Function.new(libc["memset"], [Fiddle::TYPE_SIZE_T, Fiddle::TYPE_INT, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_SIZE_T)
      1500.times { memset.call(calloc.call(1, 40_000), 1, 40_000) }
      both = Memintro.account
      puts JSON.generate([of_objects, both].map do |one|
        row = one[:malloc_native]
        [row.bytes - first.bytes, row.details[:reached], one.verdict.find { |sentence| sentence.include?("no Ruby object counts") }]
      end)
    RUBY
    (grown, reached, sentence), (grown_more, same, leak) = result
    expect(grown).to be_between(800 * 30_000, 800 * 31_000)
    # Another object may seem to lead to the memory of a few, by a word that is no pointer; on 3.4, of some twenty.
    few = RUBY_VERSION.start_with?("3.4.") ? 760 : 790
    expect(reached[:classes].first).to include(name: "OpenSSL::BN", objects: be_between(few, 800),
                                               bytes: be_between(few * 30_000, 800 * 31_000))
    expect(sentence).to match(/\d+ objects lead to 2[34]\.\d MiB of it, and their C extension tells Ruby no size/)
      .and match(/most from (?:7[6-9]\d|800) OpenSSL::BN \(2/)
      .and include('Memintro.holders("OpenSSL::BN") says what holds them, and Memintro.leaks which')
    expect(grown_more - grown).to be_within(2 << 20).of(1500 * 40_000)
    expect(same[:classes].first).to include(name: "OpenSSL::BN", objects: be_between(few, 800))
    expect(leak).to match(/: a leak in C code, or a library's cache\. \d+ objects whose C extension tells Ruby no /)
  end

  # The pages of memintro's libraries are shared with each process that has loaded them.
  it "does not take a process for a fork because another one also has memintro" do
    result = run_ruby(code: <<~'RUBY', requires: %w[json memintro]).must_succeed.json
      other = IO.popen([RbConfig.ruby, *$LOAD_PATH.map { |folder| "-I#{folder}" }, "-rmemintro", "-e",
                        "#{USE = 'Memintro.start; Memintro.stop; Memintro.account'}; $stdout.sync = true; puts 1; sleep"])
      other.gets
      eval(USE)
      kept = Array.new(400_000) { |number| "text #{number}" }
      account = Memintro.account
      Process.kill(:KILL, other.pid)
      puts JSON.generate(verdict: account.verdict, shares: account.shares?, text: account.to_s,
                         shared: account[:memintro].shared_bytes)
    RUBY
    expect(result[:shared]).to be > 1 << 20
    expect(result[:verdict].first).to match(/\A\S+% of \S+ MiB is slots of live Ruby objects: /)
    expect(result).to include(shares: false, text: satisfy { |text| !text.include?("private") })
  end

  it "draws its page without a complaint of the browser", :long do
    skip "no chromium here (apt-get install chromium)" unless Chromium.program

    Dir.mktmpdir do |folder|
      file = File.join(folder, "account.html")
      Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "account", "--format", "html", "-o", file, "--",
                             RbConfig.ruby, "-e", "$kept = 'x' * 30_000_000").must_succeed
      browser = Chromium.new(folder)
      browser.visit(file)
      browser.screenshot(ENV["MEMINTRO_SHOT"]) if ENV["MEMINTRO_SHOT"]
      areas = browser.value("Array.from(document.querySelectorAll('svg rect')).map(r => " \
                            "{ const b = r.getBoundingClientRect(); return b.width * b.height })")
      # 30 of some 45 MiB.
      expect(areas.max / areas.sum).to be_between(0.5, 0.8)
      expect(browser.value("document.documentElement.scrollWidth <= window.innerWidth")).to be(true)
      expect(browser.complaints).to eq([])
    ensure
      browser&.close
    end
  end
end
