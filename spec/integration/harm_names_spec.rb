# frozen_string_literal: true

require "spec_helper"

# The kernel cuts the name of a process and of a thread after 15 bytes, so it may end within a character. Under LANG=C,
# no character beyond ASCII is text for Ruby.
RSpec.describe "A process whose name is no text" do
  program = <<~'RUBY'
    File.binwrite("/proc/self/comm", ("\u043e" * 8).b[0, 15])
    Thread.new { File.binwrite("/proc/thread-self/comm", ")\xff\n(".b); sleep }
    sleep 0.01 until Thread.list.last.stop?
    memory = Memintro::ProcessMemory.new($$)
    figures = { rss: -> { Memintro.rss }, peak: -> { Memintro.peak_rss }, swap: -> { Memintro.swap },
                pss: -> { Memintro.pss }, other_rss: -> { memory.rss }, other_peak: -> { memory.peak_rss },
                other_pss: -> { memory.pss }, account: -> { Memintro.account.rss },
                cgroup: -> { Memintro.cgroup; 1 } }
    answers = figures.transform_values { |figure| figure.call.class.name rescue "#{$!.class}: #{$!.message}" }
    Memintro.hunt(every: 1)
    require "memintro/runtime/deadlock"
    tasks = Dir.children("/proc/self/task").map { |id| Memintro::Deadlock.new.__send__(:sleeps, id).size }.uniq
    sleep 1.2
    puts JSON.generate(answers.merge(hunted: Memintro.stop_hunting, tasks: tasks))
  RUBY

  %w[C C.UTF-8].each do |language|
    it "is asked, hunted in and shown as any other, under LANG=#{language}" do
      result = run_ruby(code: program, requires: %w[json memintro], env: { "LC_ALL" => language }).must_succeed
      expect(result.stderr).to eq("")
      expect(result.json.values.tally).to eq("Integer" => 9, true => 1, [2] => 1)
    end

    it "is shown by memintro rss and ps, under LANG=#{language}" do
      reader, writer = IO.pipe
      pid = spawn(bare_env, RbConfig.ruby, "-e", <<~'RUBY', out: writer)
        File.binwrite("/proc/self/comm", "\xff\xfe)\x80".b); puts; $stdout.flush; sleep
      RUBY
      reader.gets
      [%W[rss #{pid}], %w[ps]].each do |arguments|
        result = run_memintro(*arguments, env: { "LC_ALL" => language })
        expect([arguments.first, result.stderr, result.status.exitstatus]).to eq([arguments.first, "", 0])
        expect(result.stdout).to be_valid_encoding
      end
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end
end
