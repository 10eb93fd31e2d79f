# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "json"
require "open3"
require "tmpdir"

# Three of the typical changes in CONTRIBUTING.md, made on a copy, are found wherever users look. The copy is built
# anew, which takes some minutes. spec/unit/typical_changes_spec.rb compares the changes with CONTRIBUTING.md.
RSpec.describe "A typical change", :long, deadline_seconds: 1_800 do
  root = File.expand_path("../..", __dir__)
  # Optimized enough to be used, and quickly compiled.
  profile = { "CARGO_PROFILE_RELEASE_LTO" => "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS" => "16",
              "CARGO_PROFILE_RELEASE_OPT_LEVEL" => "1" }

  def run_in(folder, *command, env: {})
    text, status = Open3.capture2e(env, *command, chdir: folder)
    raise "#{command.join(' ')}:\n#{text.lines.last(30).join}" unless status.success?

    text
  end

  before(:all) do
    @copy = Dir.mktmpdir("memintro-change")
    files = run_in(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    files.select { |file| File.file?("#{root}/#{file}") }.each do |file|
      FileUtils.mkdir_p(File.dirname("#{@copy}/#{file}"))
      FileUtils.cp("#{root}/#{file}", "#{@copy}/#{file}")
    end
    run_in(@copy, "git", "apply", *Dir["#{root}/spec/fixtures/changes/*.patch"])
    run_in(@copy, "rake", "figures", "settings", env: profile)
    run_in(@copy, "rake", "compile", env: profile)
  end

  after(:all) { FileUtils.rm_rf(@copy) if @copy }

  # 3 blocks from one line; the largest has 70,000 bytes.
  def report(options)
    code = <<~RUBY
      Memintro.start
      kept = [100, 70_000, 3_000].map { |size| "x" * size }
      Memintro.stop
      Memintro.report($stdout, #{options})
    RUBY
    run_in(@copy, RbConfig.ruby, "-Ilib", "-rmemintro", "-e", code)
  end

  it "has the figure in the report, in JSON, in the API and in the signatures" do
    expect(report("by: :largest_block, top: 200")).to match(/ largest  call site$.*  68\.4 KiB  -e:2$/m)
    site = JSON.parse(report("format: :json"))["call_sites"].find { |one| one["name"] == "-e:2" }
    expect(site["largest_block"]).to eq(70_001)
    expect(File.read("#{@copy}/sig/memintro/figures.rbs")).to include("def largest_block: () -> Integer")
    expect(File.read("#{@copy}/docs/api.md")).to include("| `largest_block` | bytes of the largest block")
    expect(run_in(@copy, RbConfig.ruby, "-Ilib", "-rmemintro", "-e", "p Memintro::CallSite::FIGURES"))
      .to include(":largest_block")
  end

  it "has the setting as a variable, as a flag, in the API, in the signatures and in the documents" do
    leak = ["-Ilib", "-rmemintro", "-e", "Memintro.start; Memintro.report"]
    titled = run_in(@copy, RbConfig.ruby, *leak, env: { "MEMINTRO_REPORT_TITLE" => "Of today" })
    expect(titled.lines.first).to eq("Of today\n")
    code = 'Memintro.configure { |c| c.report_title = "Configured" }; Memintro.start; Memintro.report'
    expect(run_in(@copy, RbConfig.ruby, "-Ilib", "-rmemintro", "-e", code).lines.first).to eq("Configured\n")
    run_in(@copy, "exe/memintro", "run", "--report-title", "By flag", "--report", "r.txt", "--", "ruby", "-e", "1")
    expect(File.read("#{@copy}/r.txt").lines.first).to eq("By flag\n")
    expect(File.read("#{@copy}/sig/memintro/configuration.rbs")).to include("report_title: String?")
    expect(File.read("#{@copy}/docs/settings.md")).to include("| `MEMINTRO_REPORT_TITLE` | `--report-title` |")
  end

  it "has the figure on the socket, and the format in the command" do
    code = <<~RUBY
      Memintro.start
      kept = [100, 70_000, 3_000].map { |size| "x" * size }
      Memintro.listen
      memintro = [#{RbConfig.ruby.dump}, "exe/memintro"]
      puts IO.popen([*memintro, "top", $$.to_s, "--json", "--by", "largest_block", "--top", "3"], &:read)
      puts IO.popen([*memintro, "report", $$.to_s, "--format", "tsv", "--by", "largest_block"], &:read)
      File.open("report.json", "w") { |file| Memintro.report(file, format: :json) }
      puts IO.popen([*memintro, "report", "report.json", "--format", "tsv", "--by", "largest_block"], &:read)
    RUBY
    text = run_in(@copy, RbConfig.ruby, "-Ilib", "-rmemintro", "-e", code)
    expect(text).to match(/"name":"-e:2",.*"largest_block":70001\b/)
    expect(text.lines.grep(/\A70001\t-e:2$/)).not_to be_empty
  end
end
