# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"

# Accounts with hostile file names, other threads, filters of system calls and signals: they add up, or say why not.
RSpec.describe "an account under attack", :vm, :vm_long do
  SECCOMP = <<~'RUBY'
    # Refuses these system calls with EPERM, for good.
    def refuse(*numbers)
      prctl = Fiddle::Function.new(Fiddle.dlopen(nil)["prctl"], [Fiddle::TYPE_INT, *[Fiddle::TYPE_LONG] * 4], Fiddle::TYPE_INT)
      checks = numbers.map { |number| [0x15, 0, 1, number].pack("SCCL") + [0x06, 0, 0, 0x0005_0001].pack("SCCL") }
      filter = [0x20, 0, 0, 0].pack("SCCL") + checks.join + [0x06, 0, 0, 0x7fff_0000].pack("SCCL")
      code = Fiddle::Pointer[filter]
      program = Fiddle::Pointer[[filter.bytesize / 8, code.to_i].pack("Sx6Q")]
      prctl.call(38, 1, 0, 0, 0)
      raise "no filter" unless prctl.call(22, 2, program.to_i, 0, 0).zero?
    end
  RUBY

  def sums_up(found)
    expect(found[:sum]).to eq(found[:rss])
    expect(found[:least]).to be >= 0
  end

  it "adds up with files of any names, and shows none of their bytes to a terminal" do
    code = read_program("account_hostile/files_of_any_name.rb")
    result = run_ruby(code: code, requires: %w[json fiddle tmpdir stringio memintro]).must_succeed.json
    sums_up(result)
    expect(result).to include(notes: [], controls: 0, script: false, json: result[:rss])
    expect(result[:grown]).to be_within(3 << 20).of(15 << 20)
    expect((result[:rss] - result[:kernel]).abs).to be < 3 << 20
    expect(result[:deep]).to be > 3700
  end

  it "adds up while threads fork, map and start threads, without stopping them", vm_long: false do
    code = read_program("account_hostile/forks_and_maps.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(result).to include(left: [0], done: %w[forks maps threads], least: be >= 0)
    # A thread in the middle of malloc ended the walk three times.
    expect(result[:unattributed]).to be < 0.05
  end

  it "says so where the process may not be copied" do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      #{SECCOMP}
      Memintro.account
      refuse(56, 435)
      message = begin
        Memintro.account
      rescue Memintro::AccountError => e
        e.message
      end
      puts JSON.generate(message: message)
    RUBY
    expect(result[:message])
      .to include("cannot be copied for an account of its memory: a filter of system calls (seccomp) forbids it")
  end

  def account_after(change)
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      #{SECCOMP}
      kept = "x" * 40_000_000
      Memintro.account
      #{change}
      account = Memintro.account
      sizes = File.read("/proc/self/smaps").scan(/^Size: +(\\d+) kB\\n.*\\n.*\\nRss: +(\\d+) kB/)
      size, rss = sizes.map { |pair| pair.map(&:to_i) }.max_by(&:last)
      puts JSON.generate(rss: account.rss, sum: account.rows.sum(&:bytes), least: account.rows.map(&:bytes).min,
                         notes: account.notes, objects: account[:malloc_ruby_objects].bytes, share: rss.fdiv(size))
    RUBY
    sums_up(result)
    result
  end

  it "asks mincore where pagemap may not be read" do
    skip "needs root to become another user" unless Process.uid.zero?

    # The files of such a process belong to root.
    change = "Process::UID.change_privilege(65_534); raise if File.readable?('/proc/self/pagemap')"
    expect(account_after(change)[:objects]).to be_between(40_000_000, 43_000_000)
  end

  it "estimates where the kernel does not show which pages are resident, and says so" do
    result = account_after("refuse(17, 16)")
    expect(result[:notes].first).to include("the kernel does not show which pages are resident")
    expect(result[:objects]).to be > 38_000_000 * result[:share]
  end

  it "says so where the list of mappings may not be read" do
    skip "needs root to hide /proc" unless Process.uid.zero?

    hide = "mount -t tmpfs none /proc 2>/dev/null || exit 77; exec \"$0\" \"$@\""
    code = "begin; Memintro.account; rescue Memintro::AccountError => e; puts e.message; end"
    result = Subprocess.run_command("unshare", "--mount", "sh", "-c", hide, RbConfig.ruby, "-I#{Subprocess::LIB}",
                                    "-rmemintro", "-e", code)
    skip "may not mount here" if result.status.exitstatus == 77
    expect(result.must_succeed.stdout).to match(%r{cannot be copied .* a file of /proc is missing|had counted})
  end

  # A copy that somebody stops is ended at its deadline, and waited for.
  it "does not wait for ever for a copy that was stopped" do
    code = read_program("account_hostile/copy_that_hangs.rb")
    result = run_ruby(code: code, requires: %w[json memintro]).must_succeed.json
    expect(result[:stopped]).to be > 0
    expect(result[:outcome]).to eq(0).or match(/\(SIG(?:ALRM|KILL)\).* before it had counted/)
    expect(result[:left]).to eq([])
    # Three tries of two seconds each.
    expect(result[:took]).to be < 60
  end

  it "says first if the copy crashed where it asked for sizes, and leaves those objects out" do
    result = run_ruby(code: <<~'RUBY', requires: ["json", extension("sized_data.c"), "memintro"]).must_succeed.json
      kept = SizedData.crashing
      native = Memintro.account
      puts JSON.generate(verdict: native.verdict.first, objects: native[:malloc_ruby_objects].bytes, json: native.to_h[:verdict].first,
                         sum: native.rows.sum(&:bytes), rss: native.rss, least: native.rows.map(&:bytes).min)
    RUBY
    expect(result[:verdict]).to start_with(
      "This account is not whole: the copy that counted crashed (SIGSEGV) before it knew what Ruby's objects own, " \
      "which counts as malloc_native here."
    )
    expect(result[:json]).to eq(result[:verdict])
    sums_up(result)
  end

  it "reads nothing behind a block with a mapping of its own, which is unreadable" do
    result = run_ruby(code: <<~'RUBY', requires: ["json", extension("sized_data.c"), "memintro"]).must_succeed.json
      # Of their type alone: garbage of the first account is collected at some time.
      data = ->(one) { one[:malloc_ruby_objects].details[:types].find { |type| type[:name] == "T_DATA" }[:bytes] }
      before = data.call(Memintro.account)
      walled = SizedData.walled
      account = Memintro.account
      puts JSON.generate(walled: !walled.nil?, grown: data.call(account) - before, verdict: account.verdict.first)
    RUBY
    expect(result).to include(walled: true)
    expect(result[:verdict]).not_to include("not whole")
    expect(result[:grown]).to be_between(250_000, 400_000)
  end

  # A process that listens, and what then becomes of it.
  def shown_of(becomes)
    code = "Memintro.listen; $stdout.puts(Process.pid); $stdout.flush; #{becomes}"
    IO.popen([RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", code]) do |io|
      pid = Integer(io.gets)
      Timeout.timeout(30) { sleep(0.02) until yield(pid) }
      Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "account", "--timeout", "2", pid.to_s)
    ensure
      Process.kill(:KILL, io.pid)
    end
  end

  it "shows the mappings of a process that became another program, under any name" do
    name = "\e[31mred\nPID 1"
    shown = shown_of("exec(['sleep', #{name.dump}], '60')") { |pid| File.read("/proc/#{pid}/comm") == "sleep\n" }
    expect(shown.must_succeed.stdout).to include("Note: from the kernel's list of mappings")
    expect(shown.stdout).not_to match(/[\x00-\x09\x0b-\x1f\x7f]/)
  end

  it "says that a process is stopped, and shows one that has forked" do
    stopped = shown_of("sleep") { |pid| Process.kill(:STOP, pid) && File.read("/proc/#{pid}/stat")[/\) (.)/, 1] == "T" }
    expect(stopped.stderr).to match(/did not answer within 2.0 s: it is stopped .*kill -CONT \d+$/)
    forked = shown_of("5.times { fork { sleep 20 } }; sleep") do |pid|
      File.read("/proc/#{pid}/task/#{pid}/children").split.size == 5
    end
    expect(forked.must_succeed.stdout).to match(/ RSS$/).and match(/malloc_native/)
  end

  it "says in words that a process has ended while it was looked at" do
    outcomes = Array.new(8) do |round|
      child = "Memintro.listen if #{round.odd?}; kept = Array.new(100_000) { 'x' * 100 }; puts 1; $stdout.flush; sleep"
      IO.popen([RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", child]) do |io|
        io.gets
        killer = Thread.new { sleep(0.05 * round) && Process.kill(:KILL, io.pid) }
        shown = Subprocess.run_command(RbConfig.ruby, Subprocess::EXE, "account", "--json", io.pid.to_s)
        killer.join
        shown
      end
    end
    outcomes.each do |shown|
      expect(shown.stderr).not_to match(/\.rb:\d+/)
      if shown.status.success?
        account = JSON.parse(shown.stdout, symbolize_names: true)
        expect(account[:rows].sum { |row| row[:bytes] }).to eq(account[:rss])
      else
        expect(shown.stderr).to match(/\Amemintro: \S/)
      end
    end
  end
end
