# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "tmpdir"

RSpec.describe "memintro leaks", :listening do
  LEAKING = <<~'RUBY'
    require "fiddle"
    Memintro.listen
    puts "ready"
    loop do
      20.times { Fiddle.malloc(777) }
      sleep 0.02
    end
  RUBY

  def leaks(*arguments) = run_memintro("leaks", *arguments, env: listening_env)

  it "tracks a running process for a while, names its line, and turns tracking off again" do
    program = start_program(LEAKING)
    result = leaks(program.pid, "--track", "2").must_succeed
    expect(result.stdout.lines.first).to match(/\A[\d,]+ blocks of 777 bytes \(.*\) that nothing points to, from -e:/)
    expect(result.stdout).to match(/(?:a copy|\d copies) of the process, which stood still for \d+\.\d+ ms/)
    expect(run_memintro("ps", env: listening_env).stdout).to match(/^ *#{program.pid} .* off /)
  end

  it "writes JSON and a page, and says what is missing without tracking" do
    program = start_program(LEAKING)
    found = JSON.parse(leaks(program.pid, "--json", "--first-words").must_succeed.stdout, symbolize_names: true)
    expect(found).to include(memintro_leaks: 1, pid: program.pid, allocator: "glibc", basis: "chunks", mode: "off")
    largest = found[:groups].first
    expect(largest).to include(verdict: "leaked", size: 792, site: nil, first_words: %w[zero zero zero zero])
    expect(largest[:count] * 792).to eq(largest[:bytes])
    expect(found[:verdict].last).to include("--track 60")
    Dir.mktmpdir do |folder|
      file = File.join(folder, "leaks.html")
      leaks(program.pid, "--format", "html", "-o", file).must_succeed
      page = File.read(file)
      expect(page).to include("Leaked: nothing points to them", "default-src 'none'")
      expect(page).not_to match(/<script|src=|href=/)
    end
  end

  it "and others say before that a process with many mappings will stand still for long" do
    program = start_program(<<~'RUBY')
      KEPT = Array.new(6_000) { Fiber.new { Fiber.yield }.tap(&:resume) }
      Memintro.listen
      puts "ready"
      sleep
    RUBY
    said = /\Amemintro: process #{program.pid} has 1\d,\d{3} mappings .*: it will stand still for about 0\.\d s/
    expect(leaks(program.pid).must_succeed.stderr).to match(/#{said} in 2 parts$/)
    commands = [["account"], %w[holders --class Fiber]]
    told = commands.map { |command| run_memintro(*command, program.pid, env: listening_env).must_succeed.stderr }
    expect(told).to all(match(/#{said}$/))
    expect(leaks(start_program(LEAKING).pid).must_succeed.stderr).to eq("")
  end

  it "says what it does where that takes more than a second" do
    program = start_program("KEPT = Array.new(1_100_000) { Object.new }; Memintro.listen; puts :ready; sleep")
    expect(leaks(program.pid, "--track", "1.1").must_succeed.stderr)
      .to match(/\Amemintro:\ tracks\ process\ #{program.pid}\ for\ 1\.1\ s,\ and\ then\ searches\ it\n
                memintro:\ searches\ process\ #{program.pid}\ \(1,1\d\d,\d{3}\ objects\ or\ blocks,\ RSS\ [\d.]+\ MiB\):
                \ that\ takes\ about\ 2\ s,\ and\ more\ where\ processors\ are\ busy\n\z/x)
  end

  it "says that Ruby itself asked for blocks that a method of its own loses" do
    skip "this Ruby loses none there" unless RUBY_VERSION.start_with?("3.1") && RUBY_PLATFORM.start_with?("x86_64")

    program = start_program(<<~'RUBY', requires: %w[memintro])
      text, other = "\xE0\xA0\xA1#{' ' * 100}".dup.force_encoding("EUC-JP"), "a".dup.force_encoding("Windows-31J")
      lose = proc { text.tr_s("", other) rescue nil }
      Memintro.listen
      Thread.new { loop { 100.times(&lose); sleep(0.01) } }
      puts "ready"
      sleep
    RUBY
    told = leaks(program.pid, "--track", "2").must_succeed.stdout.lines
    asked = /\A[\d,]+ blocks of \d+ bytes .*, from -e:2, where Ruby itself asked for them, and no C/
    expect(told.first).to match(asked)
    expect(told.first(6)).to include(/\AA method of Ruby that this line calls loses them/)
  end

  it "shows the leaks of a command when it ends" do
    result = run_memintro("leaks", "--", RbConfig.ruby, "examples/leak.rb", chdir: Subprocess::ROOT).must_succeed
    expect(result.stderr.lines.first)
      .to match(%r{\A(?:49,9\d\d|50,000) blocks of 1,024 bytes .* from \S*examples/leak\.rb:12\.$})
  end

  it "says so if the process dies meanwhile, and leaves no copy behind" do
    program = start_program(<<~RUBY)
      KEPT = Array.new(200_000) { |number| "x" * 500 }
      Memintro.listen
      puts "ready"
      sleep
    RUBY
    asking = Thread.new { leaks(program.pid) }
    copy = wait_for(60) { children_of(program.pid).first }
    program.kill
    result = asking.value
    expect(result.status.exitstatus).to eq(1)
    expect(result.stderr).to match(/memintro: process #{program.pid} (?:ended|is a zombie)/)
    expect(wait_for(30) { gone?(copy) }).to be(true)
  end

  def wait_for(seconds)
    (seconds * 100).times { (found = yield) ? (return found) : sleep(0.01) }
    nil
  end

  # Whether it has ended, waited for or not.
  def gone?(pid)
    File.read("/proc/#{pid}/stat").include?(") Z ")
  rescue SystemCallError
    true
  end

  def children_of(pid)
    Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).select do |child|
      File.read("/proc/#{child}/stat").split(") ", 2).last.split[1].to_i == pid
    rescue SystemCallError
      false
    end
  end
end
