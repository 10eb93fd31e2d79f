# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/listening"

# docs/settings.md promises that a program under `MEMINTRO_DISABLE` runs as if nothing were tracked. Here each example
# of README.md and docs/ is run with the variable set: typed in a folder that has `examples` and nothing else.
RSpec.describe "README.md and docs/ under MEMINTRO_DISABLE=1", :listening do
  BRAKE = { "MEMINTRO_DISABLE" => "1" }.freeze
  ONE_LINE = /\A(?:memintro: MEMINTRO_DISABLE=1 is set, so nothing is tracked in process \d+, .*\n)?\z/

  # Commands that fail, with their messages: a missing file, a process that does not listen.
  ENDS = {
    /\Amemintro [\w-]+ "?(?:shop|puma)/ => [1, /\Amemintro: no process that listens|\Amemintro: .*listen/i],
    /; memintro (?:diff|histogram) |\Amemintro (?:diff|snapshot) .*tmp\/(?:one|snap)(?!.* -- )/ =>
      [1, %r{\Amemintro: tmp/\w+\.(?:\d+\.)?json cannot be read: No such file}],
    /\Amemintro leaks --core FILE/ => [1, /\Amemintro: .*FILE: No such file/],
    /\Amemintro leaks PID/ => [1, /\Amemintro: no process listens/],
    /\Amemintro leaks -- ruby app\.rb/ => [1, /\Aruby: No such file or directory -- app\.rb/],
    /rake mem_check\z/ => [1, /\Arake aborted!\nNo Rakefile found/],
    /\Amemintro report tmp/ => [1, %r{\Amemintro: tmp/\w+\.json: No such file}],
    /\Amemintro (?:rss|requests|plot) / => [0, /\A(?:process \d+\n  RSS .*|[^!]*)\z/m],
    /\Amemintro doctor/ => [1, /\A\z/]
  }.freeze
  # Required standard output; our own programs print the same as without memintro.
  PRINTS = {
    %r{mwrap_leak\.rb} => /\ARSS: \d+ ObjectSpace size \d+\nRSS: \d+ ObjectSpace size \d+\n\z/,
    /Memintro\.account/ => /\ARSS .*\nRSS .*\n[\d.]+% of .* RSS\n\z/m,
    %r{-rmemintro -e.*leak\.rb} => /\ARSS .*\nRSS .*\nmemintro .* not tracking,.*Nothing has been tracked/m,
    %r{\Amemintro rss -- } => /\A10000 methods, and the answer is 142\n\z/,
    %r{; memintro snapshot} => /\A(?:RSS \d+ kB, ObjectSpace \d+ kB\n){4}\z/,
    %r{examples/leak\.rb} => /\ARSS \d+ kB, ObjectSpace \d+ kB\nRSS \d+ kB, ObjectSpace \d+ kB\n\z/,
    %r{examples/big_module\.rb} => /\A10000 methods, and the answer is 142\n\z/,
    /\Amemintro env/ => /LD_PRELOAD=/,
    /\Amemintro doctor/ => /^memintro run: does not work: MEMINTRO_DISABLE=1 is set\n\z/,
    /\Amemintro/ => /\A[^!]*\z/,
    /requests --json/ => /"kinds":4,/,
    /rake mem_check\z/ => /\A/
  }.freeze
  # Unknown results are reported as such: a test does not pass, and no holders are named.
  REFUSES = { 'require "memintro/rspec"' => /so memory is not measured \(Memintro::DisabledError\)/,
              "holders(Object, older_than_gcs: 2)" =>
                /objects are not tracked, so their lines and ages are unknown/ }.freeze
  # Commands that read a log work, and may write a picture.
  PICTURE = "memory.svg"

  commands = Documents.blocks("console", "sh").flat_map(&:commands).map(&:text).uniq
  commands = commands.reject { |text| Documents::NOT_TYPED.any? { |pattern, _| text.match?(pattern) } }
                     .grep_v(/\A(?:gem|rbtrace|MEMINTRO_LISTEN=1) /)

  around { |example| Documents.workspace { |folder| (@folder = folder) && example.run } }

  def typed(command, **options)
    env = listening_env("PATH" => "#{@folder}/bin:#{ENV.fetch('PATH')}", "RUBYLIB" => Subprocess::LIB, **BRAKE)
    run_command("sh", "-c", command, env: env, chdir: @folder, **options)
  end

  commands.each do |command|
    it "types: #{command}" do
      reason = Documents.missing(command)
      skip reason if reason
      Documents.write_log(@folder) if command.include?("log/production")
      result = typed(command)
      code, complaint = ENDS.find { |pattern, _| command.match?(pattern) }&.last || [0, ONE_LINE]
      expect([result.status.exitstatus, result.stderr]).to match([code, complaint]), result.inspect
      expect(result.stdout).to match(PRINTS.find { |pattern, _| command.match?(pattern) }.last)
      expect(Dir.children(File.join(@folder, "tmp")) - [PICTURE]).to eq([])
    end
  end

  it "starts the shop of the page on live processes, with no socket and no process to ask" do
    shop = start_program("load ARGV.first", File.join(@folder, "examples", "shop.rb"),
                         env: { "MEMINTRO_LISTEN" => "1", **BRAKE }, chdir: @folder, wait: false)
    eventually { File.read("/proc/#{shop.pid}/task/#{shop.pid}/children").split.size == 2 }
    expect([sockets, typed("memintro ps").stdout]).to match([[], /\A(?:No process listens.*)?\z/m])
    expect(shop).to be_alive
  end

  one_ruby requires: ["memintro"], env: BRAKE

  Documents.blocks("ruby").each do |block|
    it "runs the Ruby of #{block}: #{block.code.lines.first.chomp}" do
      reason = Documents.missing(block.code)
      skip reason if reason
      sidekiq = "require 'sidekiq'; " if block.code.include?("Sidekiq")
      result = run_forked("#{sidekiq}#{block.code}", chdir: @folder)
      refusal = REFUSES.find { |code, _| block.code.include?(code) }&.last
      next expect([result.status.exitstatus, result.stderr]).to match([1, refusal]) if refusal

      expect(result.must_succeed.stderr).to match(ONE_LINE)
      expect(result.stdout).not_to include("full mode")
    end
  end

  it "answers what rbtrace and signals ask for, from within a handler" do
    page = Documents::PAGES.fetch("docs/without_listening.md")
    asked = page.scan(/^\$ rbtrace -p PID -e '(.*)'$/).flatten
    expect(asked.size).to be >= 4
    asked = asked.map { |text| text.sub("/tmp/report.txt", "tmp/report.txt") }
    code = "trap('USR1') { $answers = [#{asked.join(', ')}] }; Process.kill(:USR1, $$); sleep 0.01 until $answers; " \
           "p $answers.first, File.size('tmp/report.txt').positive?"
    result = run_ruby(code: code, env: BRAKE, chdir: @folder).must_succeed
    expect([result.stdout, result.stderr]).to match(["false\ntrue\n", ONE_LINE])
  end

  describe "below a web server" do
    before { skip PumaServer.missing if PumaServer.missing }

    it "has the config.ru serve, and log no line" do
      rackup = File.join(@folder, "config.ru")
      File.write(rackup, Documents.blocks("ruby config.ru").first.code)
      [[], ["-w", "2"]].each do |arguments|
        PumaServer.run(rackup, env: BRAKE, arguments: arguments) do |server|
          answers = Array.new(20) { server.get("/") }
          expect(answers.map { |answer| [answer.code, answer.body] }.uniq).to eq([%w[200 hello]])
          expect([server.lines, server.log.lines.grep(/memintro: (?!MEMINTRO_DISABLE=1 is set)/)]).to eq([[], []])
          # Each worker loads the config.ru for itself; one may not have done so yet.
          expect(server.log.lines.grep(/memintro: /).size).to be_between(1, [1, arguments.last.to_i].max)
        end
      end
    end

    it "has Rails' settings taken, and log no line" do
      found = run_ruby(code: "require 'rails'; require 'action_controller/railtie'", requires: [])
      skip "no Rails for this Ruby here (Debian's ruby-railties)" unless found.success?

      application = File.read(File.join(Subprocess::ROOT, "spec", "fixtures", "web", "rails.ru"))
      rackup = File.join(@folder, "config.ru")
      settings = Documents.blocks("ruby config/application.rb").first.code
      File.write(rackup, application.sub(/^  config\.memintro\.start.*$/, settings))
      PumaServer.run(rackup, env: BRAKE) do |server|
        expect(server.get("/posts/7/3000").body.size).to eq(3_000)
        expect(server.lines).to eq([])
      end
    end
  end
end
