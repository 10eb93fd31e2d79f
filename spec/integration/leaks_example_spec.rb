# frozen_string_literal: true

require_relative "../spec_helper"

# examples/leaks/README.md, typed: each of the four leaks is found by the commands and with the words that it gives.
RSpec.describe "examples/leaks" do
  text = File.read(File.join(Subprocess::ROOT, "examples", "leaks", "README.md"), encoding: "UTF-8")
  commands = text.scan(/^\$ (.*)$/).flatten

  before(:all) do
    found = run_ruby(code: "require 'rack/body_proxy'", requires: [])
    @reason = "no Rack here (Debian's ruby-rack)" unless found.success?
  end

  before { skip @reason if @reason }

  around { |example| Dir.mktmpdir("memintro-bin") { |folder| @folder = folder and example.run } }

  def typed(command)
    exe = File.join(@folder, "memintro")
    File.symlink(Subprocess::EXE, exe) unless File.symlink?(exe)
    env = { "PATH" => "#{@folder}:#{ENV.fetch('PATH')}", "RUBYLIB" => Subprocess::LIB }
    result = run_command("sh", "-c", command, env: env, chdir: Subprocess::ROOT).must_succeed
    result.stdout + result.stderr
  end

  # The rows of a diff that name this: [growth in bytes or "", growth in count].
  def row(diff, name)
    line = diff.lines.grep(/ #{Regexp.escape(name)}$/).first or raise "no #{name} in\n#{diff}"
    growth, count = line.match(/\A *([+-][\d.]+ [KMG]?i?B) +([+-]?[\d,]+)/).captures
    scale = { "B" => 1, "KiB" => 1 << 10, "MiB" => 1 << 20 }.fetch(growth.split.last)
    [growth.to_f * scale, count.delete(",").to_i]
  end

  # The blocks of 200 requests at a line, and what Ruby itself may malloc while it stands there: the records of pages
  # that its heap grows by.
  def be_those_of_200_requests = be_between(200, 204)

  def visited(page)
    [typed("ruby examples/leaks/visit.rb #{page}"),
     typed("memintro diff --top 5 tmp/leaks/#{page}.before.json tmp/leaks/#{page}.after.json")]
  end

  it "gives commands that work, and a line of each pair's output" do
    pages = commands.grep(/visit\.rb/).map { |command| command[/\w+\z/] }
    expect(pages).to eq(%w[thumbnails reports search upload])
    expect(commands.size).to eq(8)
    told = commands.map { |command| typed(command) }.join
    causes = text.scan(/^(?:Malloc|Instruction sequences) \+.* in [\d,]+, (?:nearly )?all ((?:of|at) .*\.)$/).flatten
    expect(causes.size).to eq(4)
    causes.each do |cause|
      # Ruby 3.2 and later keep most of these strings in their slots.
      cause = "of class String." if cause.include?("search.rb") && RUBY_VERSION >= "3.2"
      cause = Regexp.escape(cause.delete_suffix("."))
      expect(told).to match(/^(?:Malloc|Instruction sequences|Objects) \+.* in [\d,]+, .*#{cause}\b/)
    end
  end

  it "serves the shop by a real server, which is asked for the snapshots" do
    skip PumaServer.missing if PumaServer.missing
    served = text[/`MEMINTRO_LISTEN=1 puma (\S+\.ru)`/, 1]
    env = { "MEMINTRO_LISTEN" => "1", "MEMINTRO_SOCKET_FOLDER" => @folder }
    files = Array.new(2) { |i| File.join(@folder, "#{i}.json") }
    PumaServer.run(File.join(Subprocess::ROOT, served), env: env, arguments: ["-t", "1:1"]) do |server|
      files.each_with_index do |file, i|
        50.times { |n| expect(server.get("/search/#{i}-#{n}").code).to eq("200") }
        run_memintro("snapshot", "puma", "-o", file, env: env).must_succeed
      end
      # Ruby 3.2 and later keep most of these strings in their slots.
      server.wait("log") { server.lines.grep(%r{path=/search/1-49 .* malloc_bytes=\d+ malloc_calls=\d+ }).any? }
    end
    diff = run_memintro("diff", "--top", "all", *files).must_succeed.stdout
    expect(row(diff, "Search::Result").last).to eq(50 * 50)
  end

  it "finds the C library's memory at its line, and in no class" do
    said, diff = visited("thumbnails")
    expect(said).to match(%r{path=/thumbnails/late-199 malloc_bytes=65\d{3} rss_bytes=})
    bytes, count = row(diff, "examples/leaks/thumbnails.rb:8")
    expect(count).to be_those_of_200_requests
    expect(bytes).to be_within(0.06 * (1 << 20)).of(200 * 65_536)
    expect(diff).not_to match(/^Objects \+/)
  end

  it "finds the instruction sequences of the template" do
    _, diff = visited("reports")
    bytes, count = row(diff, "report.template")
    # A word left on the stack may keep what was evaluated last, beside the methods.
    expect(count).to be_between(200, 201)
    expect(bytes).to be > 1_000_000
    expect(diff).to match(/^Malloc \+.*all at examples\/leaks\/reports\.rb:14\.$/)
  end

  it "finds the cache by the class that grows with each request" do
    _, diff = visited("search")
    expect(row(diff, "Search::Result").last).to eq(10_000)
    # Ruby 3.2 and later keep most of the strings in their slots.
    expect(row(diff, "examples/leaks/search.rb:10").first).to be > (RUBY_VERSION < "3.2" ? 1_000_000 : 10_000)
  end

  it "finds the closure by its environments" do
    _, diff = visited("upload")
    bytes, count = row(diff, "examples/leaks/events.rb:8")
    expect(count).to be_those_of_200_requests
    expect(bytes).to be_within(0.06 * (1 << 20)).of(200 * 100_001)
    expect(row(diff, "Proc").last).to be_within(5).of(200)
    expect(row(diff, "imemo_env").last).to be_within(10).of(200)
  end
end
