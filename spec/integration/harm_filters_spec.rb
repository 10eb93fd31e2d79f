# frozen_string_literal: true

require "spec_helper"

# Filters of system calls (seccomp), as systemd, Docker and sandboxes have them. Nothing of memintro may end the program
# for a call, or hang because one is refused.
RSpec.describe "Filters of system calls" do
  one_ruby requires: ["json", "tmpdir", "memintro", Filters.extension]

  # Runs this under a filter that answers so to these calls.
  def refusing(names, answer, code, **options)
    filter = "Filter.install(#{Filters.numbers(*names)}, #{answer}, #{Filters::ALLOW})\n"
    run_forked(filter + code, deadline_seconds: 60, **options).must_succeed.json
  end

  COPIES = <<~'RUBY'
    kept = Array.new(50_000) { |number| "kept #{number}" }
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Dir.mktmpdir do |folder|
      results = [
        Memintro.account.rows.size > 5,
        Memintro.leaks.scanned_blocks > 1_000,
        Memintro.holders(String, seconds: 30).objects >= 50_000,
        *%w[plain.ndjson packed.ndjson.zst].map { |name| Memintro.heap_dump(File.join(folder, name), seconds: 30)[:objects] > 50_000 }
      ]
      puts JSON.generate(results: results, took: Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun)
    end
  RUBY

  { "a kernel before 5.9" => "ENOSYS", "an old profile of Docker's" => "EPERM", "an old list of systemd's" => "KILL" }
    .each do |who, answer|
    it "lets copies answer where #{who} does not have close_range" do
      found = refusing(%w[close_range], Filters.const_get(answer), COPIES)
      expect(found[:results]).to eq([true] * 5)
      expect(found[:took]).to be < 25
    end
  end

  # Hosts, each with what it has started in a process group of its own.
  LEAVING = <<~'RUBY'
    kept = Array.new(100_000) { |number| "kept #{number}" }
    ended = ->(group) { Process.kill(0, -group) && false rescue true }
    file = File.join(Dir.mktmpdir, "dump.ndjson")
    gone = [0, 0.01, 0.05, 10].map do |seconds|
      host = fork do
        Process.setpgrp
        %s
        asking = Thread.new { Memintro.heap_dump(file, seconds: 60) }
        asking.join(seconds)
        exit!(asking.alive? ? 0 : 7)
      end
      ends = Process.wait2(host).last.exitstatus
      1_000.times { ended.(host) ? break : sleep(0.01) }
      [ends, ended.(host)]
    end
    puts JSON.generate(gone)
  RUBY

  it "leaves no copy behind where a process may end no other one" do
    numbers = Filters.numbers(*%w[kill tkill tgkill pidfd_send_signal])
    filter = "Filter.install(#{numbers}, #{Filters::EPERM}, #{Filters::ALLOW})"
    found = run_forked(format(LEAVING, filter), deadline_seconds: 90).must_succeed.json
    expect(found.map(&:last)).to eq([true] * 4)
    expect(found.last.first).to eq(7)
  end
end
