# frozen_string_literal: true

require "spec_helper"

# AddressSanitizer, preloaded as C extensions are debugged: it checks what libc's functions get, and ends the process
# where that is not mapped memory.
RSpec.describe "AddressSanitizer, preloaded" do
  it "lets memintro start, answer and stop" do
    library = Dir["/usr/lib/*-linux-gnu/libasan.so.8"].first or skip "libasan.so.8 is not installed"
    code = <<~'RUBY'
      Memintro.start
      kept = Array.new(1_000) { "x" * 1_000 }
      text = StringIO.new.tap { |io| Memintro.report(io) }.string
      measured = Memintro.measure { kept << ("m" * 100_000) }.allocated_bytes
      account = Memintro.account
      objects = Dir.mktmpdir { |folder| Memintro.heap_dump(File.join(folder, "dump.ndjson"))[:objects] }
      holders = Memintro.holders(String).objects
      live = Memintro.totals.live_bytes
      Memintro.stop
      puts JSON.generate(text: text[/-e:2/], measured: measured, differs: account.rows.sum(&:bytes) - account.rss,
                         objects: objects, holders: holders, live: live, tracks: Memintro.tracking?)
    RUBY
    found = run_ruby(code: code, requires: %w[json stringio tmpdir memintro],
                     env: { "LD_PRELOAD" => library, "ASAN_OPTIONS" => "detect_leaks=0" }).must_succeed.json
    expect(found).to include(text: "-e:2", differs: 0, tracks: false)
    expect(found[:measured]).to be_between(100_000, 120_000)
    expect(found[:live]).to be >= 1_100_000
    expect([found[:objects], found[:holders]]).to all(be > 1_000)
  end
end
