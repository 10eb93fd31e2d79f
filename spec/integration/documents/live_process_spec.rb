# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/listening"

# The chapters about a live process, typed from their first command to their last: README.md's, and "From start to stop"
# in docs/live_process.md. What is shown must be what is given, but for the numbers.
RSpec.describe "README.md and docs/ about a live process", :listening do
  FIRST = "MEMINTRO_LISTEN=1 ruby -rmemintro examples/shop.rb &"
  NAMES = ["shop: master", "shop: worker 0", "shop: worker 1"].freeze

  def self.chapter(page)
    commands = Documents.blocks("console").select { |block| block.page == page }.flat_map(&:commands)
    from = commands.index { |command| command.text == FIRST }
    commands.drop(from).take_while { |command| command.text.match?(/shop|\Amemintro ps\z/) }
  end

  def typed(command, env = {})
    env = listening_env("PATH" => "#{@folder}/bin:#{ENV.fetch('PATH')}").merge(env)
    run_command("sh", "-c", command, chdir: @folder, env: env).must_succeed.stdout
  end

  around { |example| Documents.workspace { |folder| (@folder = folder) && example.run } }

  # A line about what is left out is there or not: the collector may have taken some blocks, too.
  def differences(command) = Documents.differences(command.shown, typed(command.text), steady: /\A(?!\d+ more call)/)

  def check(command)
    # Workers must have worked for a while, and a collection have come, before `top` has all that is shown.
    patience = command.text.start_with?("memintro top") ? 30 : 0
    due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    found = differences(command)
    until found.flatten.empty? || Process.clock_gettime(Process::CLOCK_MONOTONIC) > due
      sleep(0.1)
      found = differences(command)
    end
    expect(found).to eq([[], []]), "#{command.text}: lacking, and more than shown:\n#{found.inspect}"
  end

  # Commands without shown output.
  def check_silent(command)
    said = typed(command.text)
    case command.text
    when /histogram/ then expect(said.scan(/^process \d+ \((.*)\):$/).flatten).to eq(NAMES)
    when /snapshot/ then expect(Dir[File.join(@folder, "tmp", "snap.*.json")].size).to eq(3)
    else raise "nothing is known of what #{command.text} says"
    end
  end

  def start_shop
    start_program("load ARGV.first", File.join(@folder, "examples", "shop.rb"),
                  env: { "MEMINTRO_LISTEN" => "1" }, chdir: @folder, wait: false)
    eventually { sockets.size == 3 && typed("memintro ps").scan(/shop: (?:master|worker)/).size == 3 }
  end

  { "README.md" => 5, "docs/live_process.md" => 11 }.each do |page, count|
    it "shows in #{page} what the commands print" do
      first, *rest = self.class.chapter(page)
      expect([first.text, rest.size + 1]).to eq([FIRST, count])
      start_shop
      rest.each { |command| command.shown.strip.empty? ? check_silent(command) : check(command) }
    end
  end

  it "shows how to compare two workers" do
    start_shop
    commands = Documents.blocks("console").flat_map(&:commands).map(&:text)
    typed(commands.find { |text| text.start_with?("memintro snapshot shop") })
    pids = typed("memintro ps").scan(/^ *(\d+) .*shop: worker/).flatten
    compare = commands.find { |text| text.start_with?("memintro diff tmp/snap.") }
    expect(compare.scan(/snap\.\d+\.json/).size).to eq(2)
    given = typed(compare.gsub(/snap\.\d+/) { "snap.#{pids.shift}" })
    worker = /\d+ \(shop: worker [01]\)/
    expect(given).to match(/^note: Two processes are compared: #{worker} and #{worker}\.$/)
  end

  it "shows how to ask a Puma and its workers" do
    skip PumaServer.missing if PumaServer.missing
    block = Documents.blocks("console").find { |found| found.code.include?(" puma -w 2 ") }
    asked = block.commands.map(&:text).grep(/\Amemintro .* puma /)
    expect(asked.size).to eq(2)
    env = { "MEMINTRO_LISTEN" => "1", "MEMINTRO_SOCKET_FOLDER" => socket_folder }
    rackup = File.join(@folder, "config.ru")
    File.write(rackup, Documents.blocks("ruby config.ru").first.code.sub("Memintro.start", ""))
    PumaServer.run(rackup, env: env, arguments: ["-w", "2"]) do |server|
      server.wait("listen twice") { sockets.size >= 2 }
      started, grown = asked.map { |text| typed(text.sub("--for 30", "--for 1")) }
      expect(started.scan(/tracks its allocations now \(full mode\)$/).size).to be >= 2
      expect(grown.scan(/^process \d+ \(.*puma.*\):$/).size).to be >= 2
    end
  end
end
