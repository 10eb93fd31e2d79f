# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# `memintro hunt`, the control socket, the variable and the railtie.
RSpec.describe "memintro hunt", :listening do
  server = File.join(Subprocess::SCRIPTS, "hunt_server.rb")

  it "begins a hunt, shows it, and ends it" do
    program = start_program("Memintro.listen; puts :ready; sleep")
    pid = program.pid
    expect(memintro("hunt", "--show", pid).must_succeed.stdout)
      .to match(/\Aprocess #{pid} \(-e\) does not hunt, and has kept 0 findings\.\n\z/)
    text = memintro("hunt", "--every", "5", pid).must_succeed.stdout
    expect(text).to match(/\Aprocess #{pid} \(-e\) hunts from now on: 0 findings so far, .*\nIt looks /)
    expect(text).to match(/^Ask again in about 4[05]\.0 s: memintro hunt #{pid}\n\z/)
    told = JSON.parse(memintro("hunt", "--json", pid).must_succeed.stdout)
    expect(told).to include("pid" => pid, "hunting" => true, "hunted" => true, "every" => 5, "findings" => [],
                            "errors" => 0, "state" => "watching")
    eventually { JSON.parse(memintro("hunt", "--json", "--show", pid).stdout)["looks"].positive? }
    expect(memintro("hunt", "--show", pid).must_succeed.stdout)
      .to match(/0 findings so far, .*\nIt looks (?:now|next in [0-5]\.\d s)\./)
    expect(memintro("hunt", "--stop", pid).must_succeed.stdout).to match(/has stopped to hunt, after 0 findings\.\n\z/)
    expect(memintro("hunt", "--stop", pid).must_succeed.stdout).to include("does not hunt")
  end

  it "says when it looks next and why so late" do
    program = start_program(<<~'RUBY', requires: ["memintro", "stringio", server])
      begin_hunt
      Memintro.listen
      serve(0.25)
      # A look that has taken three seconds of a processor: so long as it takes until these are 0.2% of a core.
      Memintro::Hunt.current.instance_variable_get(:@budget).instance_variable_set(:@spent, 3.0)
      serve(1.5)
      puts :ready
      sleep
    RUBY
    pause = 3.0 / 0.002
    text = memintro("hunt", "--show", program.pid).must_succeed.stdout
    left = text[/^It looks next in ([\d.]+) minutes, and not sooner, because it has taken 3\.\d s of processor time/, 1]
    expect(left.to_f * 60).to be_between(pause - 120, pause + 120)
    expect(text).to include("and takes at most 0.2% of a core.\nWhat grows shows after six looks at least")
    told = JSON.parse(memintro("hunt", "--show", "--json", program.pid).must_succeed.stdout)
    expect(told).to include("state" => "watching", "suspects" => [],
                            "next_look_s" => be_within(120).of(pause))
  end

  it "shows what was found, with the line and who holds it" do
    program = start_program("begin_hunt; Memintro.listen; serve(12) { Memintro.findings.any? }; puts :ready; sleep",
                            requires: ["memintro", "stringio", server])
    # A hunt of the program's own is left as it is.
    text = memintro("hunt", "--every", "5", program.pid).must_succeed.stdout
    line = File.readlines(server).index { |one| one.start_with?("def leak") } + 1
    expect(text).to match(/\A\S+ \d+ \(-e\) hunts: 1 finding so far, \d+ looks for 0\.\d{3}% of a core:\n\nString g/)
    expect(text).to include("made at #{server}:#{line}, held by").and include("KEPT (Array) ← root vm")
      .and include("\nLook at what holds them: ").and include("\nstack: #{server}:#{line}")
    finding = JSON.parse(memintro("hunt", "--show", "--json", program.pid).must_succeed.stdout)["findings"].first
    expect(finding).to include("what" => "String", "kind" => "ruby_objects", "ended_at" => nil,
                               "site" => "#{server}:#{line}")
    expect(finding["bytes_per_minute"]).to be_within(400_000).of(90 * 12 * 1_040)
  end

  it "has all workers of a server hunt, and puts their findings into one list" do
    program = start_program(<<~'RUBY', requires: ["memintro", "stringio", server])
      Memintro.listen
      parent = Process.pid
      done = IO.pipe
      2.times do
        fork do
          begin_hunt
          serve(30) { Memintro.findings.any? }
          done[1].puts(Memintro.findings.size)
          sleep(0.1) while Process.ppid == parent
        end
      end
      2.times { done[0].gets }
      puts :ready
      sleep
    RUBY
    line = File.readlines(server).index { |one| one.start_with?("def leak") } + 1
    text = memintro("hunt", "--workers", "--show", program.pid).must_succeed.stdout
    expect(text)
      .to match(/\A2 of 3 processes hunt: 2 findings so far:\n\nString grows by .* made at #{server}:#{line}, /)
    expect(text).to match(/^the same in process \d+: ~\S+ [KM]iB a minute since /)
    together = text[/^together ~([\d.]+) MiB a minute in 2 findings$/, 1].to_f
    expect(together).to be_within(0.8).of(2 * 90 * 12 * 1_040 / (1 << 20).to_f)
    expect(text).to match(/^process #{program.pid} \(-e\) does not hunt, and has kept 0 findings\.$/)
    told = memintro("hunt", "--workers", "--show", "--json", program.pid).must_succeed.stdout.lines
    told.map! { |one| JSON.parse(one) }
    expect(told.to_h { |one| [one["pid"], one["findings"].map { |finding| finding["pid"] }] })
      .to match(program.pid => [], **told.last(2).to_h { |one| [one["pid"], [one["pid"]]] })
  end

  it "starts by MEMINTRO_HUNT, in a program that requires memintro, and not in the command" do
    look = "p Memintro.hunting?, (Memintro.hunting? && Memintro::Hunt.current.every)"
    tried = ["1", "30", "0", ""].to_h { |text| [text, run_ruby(code: look, env: { "MEMINTRO_HUNT" => text }).stdout] }
    expect(tried).to eq("1" => "true\n60\n", "30" => "true\n30.0\n", "0" => "false\nfalse\n", "" => "false\nfalse\n")
    wrong = run_ruby(code: "puts 1", env: { "MEMINTRO_HUNT" => "often" }).must_succeed
    expect(wrong.stdout).to eq("1\n")
    expect(wrong.stderr).to match(/\Amemintro: process \d+ does not hunt: MEMINTRO_HUNT is "often"; it must be 1 or a/)
    expect(memintro("ps", env: { "MEMINTRO_HUNT" => "often" }).stderr).not_to include("MEMINTRO_HUNT")
  end

  it "starts by the railtie if it is configured, and only then" do
    found = run_ruby(code: "require 'rails'; require 'action_controller/railtie'", requires: [])
    skip "no Rails for this Ruby here (Debian's ruby-railties)" unless found.success?
    told = ["config.memintro.hunt = true", "config.memintro.hunt = 30",
            "config.memintro.hunt = true; config.memintro.enabled = false", ""].map do |setting|
      run_ruby(code: <<~RUBY, requires: []).must_succeed.stdout
        require "rails"
        require "action_controller/railtie"
        require "memintro/railtie"
        class Small < Rails::Application
          config.eager_load = false
          config.secret_key_base = "0" * 64
          config.logger = Logger.new(File::NULL)
          #{setting}
        end
        Small.initialize!
        p Memintro.hunting? && Memintro::Hunt.current.every
      RUBY
    end
    expect(told).to eq(["60\n", "30\n", "false\n", "false\n"])
  end
end
