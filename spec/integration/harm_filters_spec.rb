# frozen_string_literal: true

require "spec_helper"

# Filters of system calls (seccomp), as systemd, Docker and sandboxes have them. Nothing of memintro may end the program
# for a call, or hang because one is refused.
RSpec.describe "Filters of system calls" do
  one_ruby requires: ["json", "stringio", "tmpdir", "memintro", "memintro/cli", Filters.extension]

  Filters.all.each do |name, filters|
    %w[before after].each do |order|
      it "takes nothing from a program under #{name} that came #{order} the start" do
        found = run_forked("load #{File.join(Subprocess::SCRIPTS, "filtered.rb").inspect}",
                           arguments: [JSON.generate(filters), order]).must_succeed.json
        wrong = found.reject { |_, (result, seconds)| result == "right" && seconds < 20 }
        expect(wrong.keys).to eq([:answers]), "#{wrong}"
        expect(found.size).to eq(27)
        expect(found[:answers][:start].last).to include("tracks its allocations now (full mode)")
      end
    end
  end

  # Processes that end, of themselves, without Ruby's help, and by a signal.
  ENDING = <<~'RUBY'
    kept = Array.new(1_000) { "k" * 1_000 }
    JSON.parse(ARGV[0]).each { |filter| Filter.install(*filter) }
    pids = [-> { exit }, -> { exit!(3) }, -> { Filter.abort }].map { |ending| fork { ending.call } }
    statuses = pids.map { |pid| Process.wait2(pid).last }
    puts JSON.generate([*statuses, $$].map { |one| one.is_a?(Integer) ? [one] : [one.pid, one.exitstatus, one.termsig] })
  RUBY

  # Runs that under the command, below filters.
  def ended(folder, before: [], after: [])
    command = [RbConfig.ruby, Subprocess::EXE, "run", "--report", File.join(folder, "%p"), "--",
               RbConfig.ruby, "-rjson", "-r#{Filters.extension}", "-e", ENDING, "--", JSON.generate(after)]
    run_forked("JSON.parse(ARGV[0]).each { |filter| Filter.install(*filter) }; exec(*JSON.parse(ARGV[1]))",
               arguments: [before, command].map { |one| JSON.generate(one) }).must_succeed.json
  end

  Filters.all.each do |name, filters|
    it "leaves a report or a raw dump of each process that ends under #{name}" do
      [{ before: filters }, { after: filters }].each do |order|
        Dir.mktmpdir do |folder|
          processes = ended(folder, **order)
          expect(processes.map { |_, *status| status }).to eq([[0, nil], [3, nil], [nil, Signal.list["ABRT"]], []])
          first = processes.map { |pid, *| File.binread(File.join(folder, pid.to_s), 7) }
          expect(first).to eq(%w[memintr MEMINTR MEMINTR memintr])
          expect(Dir.children(folder).size).to eq(4)
        end
      end
    end
  end

  # Runs this under a filter that answers so to these calls.
  def refusing(names, answer, code, **options)
    filter = "Filter.install(#{Filters.numbers(*names)}, #{answer}, #{Filters::ALLOW})\n"
    run_forked(filter + code, **options).must_succeed.json
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
  LEAVING = Subprocess.read_program("harm_filters/leaving.rb")

  it "leaves no copy behind where a process may end no other one" do
    numbers = Filters.numbers(*%w[kill tkill tgkill pidfd_send_signal])
    filter = "Filter.install(#{numbers}, #{Filters::EPERM}, #{Filters::ALLOW})"
    found = run_forked(format(LEAVING, filter)).must_succeed.json
    expect(found.map(&:last)).to eq([true] * 4)
    expect(found.last.first).to eq(7)
  end

  it "makes no call under a filter that systemd does not list, as docs/system_calls.md has it" do
    page = File.read(File.join(Subprocess::ROOT, "docs", "system_calls.md"))
    table = page[/^## Which part makes which calls.*?(?=^## )/m].lines.grep(/^\| /).drop(1)
    named = table.flat_map { |row| row.split("|")[2].scan(/`(\w+)`/).flatten }.uniq
    expect(named.size).to be > 50
    expect(Filters.numbers(*named).size).to eq(named.size) if RbConfig::CONFIG["host_cpu"] == "x86_64"
    expect(named - Filters.list("system_service")).to contain_exactly("close_range", "mincore")
  end
end
