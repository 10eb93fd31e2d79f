# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"
require_relative "../../lib/memintro/support/settings"

# What README.md tells people to type, typed. A command is run from the checkout with `memintro` and `ruby -rmemintro`
# standing for this checkout's, as they do once the gem is installed.
RSpec.describe "README.md" do
  README = File.read(File.join(Subprocess::ROOT, "README.md"), encoding: "UTF-8")

  # The chapter whose commands belong together: live_process_spec.rb.
  ALONE = README.sub(/^## A live process$.*?(?=^## )/m, "")

  def self.blocks(language) = ALONE.scan(/^```#{language}\n(.*?)^```$/m).flatten

  # Commands that install packages or run this very spec; who runs them instead.
  TYPED_ELSEWHERE = {
    "apt-get install build-essential ruby-dev libclang1-19 libclang-common-19-dev" => "bin/setup installs these",
    "gem build memintro.gemspec" => "gem_install_spec.rb",
    "gem install --local memintro-0.1.0.gem" => "gem_install_spec.rb",
    "bin/demo" => "by hand, in a fresh clone",
    "bin/test" => "runs this spec",
    "rbtrace -p PID -e 'Memintro.start'" => "rbtrace_spec.rb",
    "rbtrace -p PID -e 'Memintro.top(3)'" => "rbtrace_spec.rb",
    "rbtrace -p PID -e 'File.open(\"/tmp/report.txt\", \"w\") { |file| Memintro.report(file) }'" => "rbtrace_spec.rb",
    "rbtrace -p PID -e 'Memintro.stop'" => "rbtrace_spec.rb"
  }.freeze

  # What each must say by itself, in a stream or a file: what the programs print does not count.
  SAYS = {
    %r{\A(memintro run|eval) .*/leak\.rb"?\z} => /\bexamples\/leak\.rb:12\b/,
    /\Aruby -rmemintro/ => /\bexamples\/leak\.rb:12\b/,
    /\Amemintro env/ => /LD_PRELOAD=.*libmemintro_hook\.so.*MEMINTRO_REPORT=/,
    /\Amemintro diff .*big_module/ => /generated\.rb/,
    /\Amemintro iseqs/ => /10,000 +generated\.rb:1$/,
    /\Amemintro snapshot .*--track/ => /leak\.rb:12/,
    /\Amemintro .*histogram/ => /^ *[\d.]+ [KM]iB .* String$/,
    /\Amemintro rss/ => /\d [KM]iB/,
    /\Amemintro diff .*thumbnails/ => /thumbnails\.rb:\d+/,
    /\Amemintro doctor/ => /^memintro run: works$/,
    /\Amemintro run --compat mwrap/ => %r{mwrap_leak\.rb:12 growth: 512\d+ allocs/frees \(10\d+/50000\)},
    /\Aruby examples/ => /\S/
  }.freeze

  commands = blocks("console").flat_map { |block| block.scan(/^\$ (.*?)(?:\s+# .*)?$/).flatten }

  around { |example| Dir.mktmpdir("memintro-bin") { |folder| @folder = folder and example.run } }

  before do
    wanted = RSpec.current_example.description
    if wanted.include?("leaks/") && !run_ruby(code: "require 'rack/body_proxy'", requires: []).success?
      skip "no Rack here (Debian's ruby-rack)"
    end
    FileUtils.mkdir_p(File.join(Subprocess::ROOT, "tmp"))
    File.symlink(Subprocess::EXE, File.join(@folder, "memintro"))
  end

  def typed(command, **options)
    env = { "PATH" => "#{@folder}:#{ENV.fetch('PATH')}", "RUBYLIB" => Subprocess::LIB }
    run_command("sh", "-c", command, way: :bare, env: env, chdir: Subprocess::ROOT, **options).must_succeed
  end

  (commands - TYPED_ELSEWHERE.keys).each do |command|
    it "is right about: #{command}" do
      before = Time.now
      result = typed(command)
      files = Dir[File.join(Subprocess::ROOT, "tmp", "*.{txt,json,html}")].select { |file| File.mtime(file) >= before }
      said = [result.stdout, result.stderr, *files.map { |file| File.binread(file).force_encoding("UTF-8") }]
      expect(said.join("\n")).to match(SAYS.find { |pattern, _| command.match?(pattern) }.last)
    end
  end

  it "names only commands that exist" do
    expect(commands.size).to be >= 12
    expect(TYPED_ELSEWHERE.keys - commands).to eq([])
  end

  blocks("ruby").each_with_index do |code, index|
    it "has an example #{index + 1} that runs" do
      run_ruby(code: code).must_succeed
    end
  end

  it "shows the line that leaks, with the figures that the command gives" do
    command = commands.find { |line| line.include?("Memintro.start; load") }
    shown = README[/^.*examples\/leak\.rb:\d+$/]
    given = typed(command).stdout[/^.*examples\/leak\.rb:\d+$/]
    columns = ->(row) { row.split.then { |cells| [cells.last, *cells.grep(/\A[\d,]+\z/)] } }
    site, blocks, allocations, frees = columns[given]
    expect(columns[shown]).to include(site)
    # A few blocks more: the records of pages that Ruby's heap grows by, whatever line runs just then.
    expect([blocks, allocations, frees].map { |cell| cell.delete(",").to_i })
      .to match([be_between(50_000, 50_020), be_between(100_000, 100_020), be_between(50_000, 50_020)])
  end

  it "shows the methods that nobody can see, with the number that the command gives" do
    command = commands.find { |line| line.start_with?("memintro diff --top 3") }
    row = /^\+(\d+\.\d) MiB  \+10,000  \d+\.\d MiB     10,000  generated\.rb$/
    result = typed(command)
    verdict = /^Instruction sequences \+\d+\.\d MiB in 10,00\d, (?:nearly )?all of generated\.rb\.$/
    expect(result.stderr).to match(row).and match(verdict)
    # The size of compiled code differs by Ruby.
    expect(result.stderr[row, 1].to_f).to be_within(25).of(README[row, 1].to_f)
  end

  it "shows the line that generates them, with the number that the command gives" do
    command = commands.find { |line| line.start_with?("memintro iseqs --by location --top 5") }
    row = /^\d+\.\d MiB  9\d\.\d%  10,000  generated\.rb:1$/
    given = typed(command).stderr
    expect([README, given]).to all(match(row))
    # The heading, a blank line, titles and five rows, and what is left out.
    expect(given.lines.size).to eq(10)
  end

  it "lists every variable with its flag" do
    Memintro::Settings::ALL.each do |setting|
      expect(README).to include("| `#{setting.variable}` | `#{setting.flag}` |")
    end
  end

  it "has the chapters that people are sent to" do
    expect(README.scan(/^## (.*)$/).flatten).to include("A process that runs already", "A live process", "Look inside",
                                                        "Three lines in Rack", "Memory over time", "Rails")
  end

  it "has links that lead somewhere" do
    local = README.scan(/\]\(([^)#:]+)\)/).flatten.uniq
    expect(local.reject { |path| File.exist?(File.join(Subprocess::ROOT, path)) }).to eq([])
  end
end
