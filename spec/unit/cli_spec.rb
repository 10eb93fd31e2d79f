# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/cli"
require "memintro/cli/tool_command"
require "stringio"

RSpec.describe Memintro::CLI do
  let(:out) { StringIO.new }
  let(:err) { StringIO.new }

  # [exit code, standard output, standard error]
  def cli(*argv)
    return in_tool(argv) if argv.any? { |word| described_class.names.include?(word) && tool?(word) }

    code = described_class.start(argv, out: out, err: err)
    [code, out.string, err.string]
  end

  # The process becomes the tool.
  def in_tool(argv)
    result = run_memintro(*argv)
    [result.status.exitstatus, result.stdout, result.stderr]
  end

  def tool?(name)
    described_class.command(name) < described_class::ToolCommand
  end

  it "prints its version and its help" do
    expect(cli("--version")).to eq([0, "memintro #{Memintro::VERSION}\n", ""])
    expect(cli("version")).to eq([0, "memintro #{Memintro::VERSION}\n" * 2, ""])
    expect(cli("--help")[1])
      .to include("Usage: memintro COMMAND").and match(/^  doctor +check what works on this machine/)
  end

  described_class.names.each do |command|
    it "has help for #{command}, either way" do
      code, help, error = cli(command, "--help")
      expect([code, error]).to eq([0, ""])
      expect(help).to start_with("Usage: memintro #{command}")
      expect(help.lines.map(&:chomp)).to all(satisfy { |line| line.size <= 110 })
      out.truncate(out.rewind)
      expect(cli("help", command)).to eq([code, help, error])
    end
  end

  it "has a name and a summary in the file of each command" do
    found = described_class.names.to_h { |name| [name, described_class.command(name)] }
    expect(found.map { |name, command| [name, command::NAME] }).to all(satisfy { |name, own| name == own })
    summaries = found.values.map { |command| command::SUMMARY }
    expect(summaries.uniq.size).to eq(found.size)
    expect(summaries).to all(match(/\A[a-z].{10,75}[^.]\z/))
    expect(summaries.map { |summary| cli("--help")[1].include?("  #{summary}\n") }).to all(be(true))
  end

  it "has no flag in the help of run that it does not have as a variable" do
    cli("run", "--help")
    flags = out.string.scan(/^ +(?:-[hn], )?--(?:\[no-\])?([a-z-]+)/).flatten.map { |name| "--#{name}" } - ["--help"]
    expect(flags).to match_array(Memintro::Settings::ALL.map(&:flag))
  end

  describe "a wrong command line" do
    {
      [] => /no command given\n\nmemintro .*Usage: memintro COMMAND/m,
      ["reprot"] => /there is no command "reprot", did you mean "report"\?/,
      ["ruby", "app.rb"] => /there is no command "ruby"; to run a program, write memintro run -- ruby/,
      ["xyzzy"] => /there is no command "xyzzy"; the commands are account, allocators, .*doctor/,
      ["run"] => /no command to run: memintro run \[options\] -- CMD/,
      ["run", "--tip", "3", "ls"] => /invalid option: --tip/,
      ["run", "--top"] => /missing argument: --top/,
      ["run", "--top", "0", "ls"] => /--top is "0"; it must be a whole number of at least 1, or all/,
      ["run", "--format", "pdf", "ls"] => /--format is "pdf"; it must be text or json or html/,
      ["run", "--every", "-1", "ls"] => /--every is "-1"; it must be a number of seconds above 0/,
      ["run", "--compat", "heaptrack", "ls"] => /--compat is "heaptrack"; it must be mwrap/,
      ["env", "ruby"] => /env takes no command \("ruby"\); to run one, write memintro run -- ruby/,
      ["env", "--for", "kubernetes"] => /--for is "kubernetes"; it must be shell or docker or systemd/,
      ["plot"] => /give a log to draw, or - for standard input/,
      ["plot", "a.log", "-o", "a.gif"] => /--output is "a.gif"; its name must end in .svg, .png, .html or .txt/,
      ["plot", "a.log", "--format", "gif"] => /--format is "gif"; it must be svg, png, html or text/,
      ["plot", "--follow", "-"] => /--follow cannot go on reading standard input/,
      ["heap"] => /give a command and a heap dump \(memintro heap --help\)/,
      ["heap", "a.json", "hist"] => /there is no memintro heap "a.json"; there are histo, top, /,
      ["heap", "histo"] => /memintro heap histo takes one dump, none is given/,
      ["heap", "diff", "a.json"] => /memintro heap diff takes two or three dumps, one is given/,
      ["heap", "histo", "a.json", "--all"] => /memintro heap histo has no --all; memintro heap histo --help lists/,
      ["heap", "top", "a.json", "--by", "size"] => /--by is "size"; it must be retained_bytes or bytes/,
      ["heap", "top", "a.json", "--top", "0"] => /--top is "0"; it must be a whole number of at least 1, or all/,
      ["heap", "top", "a.json", "--top"] => /--top has no value; write --top N/,
      ["heap", "path", "a.json"] => /path needs --class, --address, --site, --generation or --older-than-gcs/,
      ["requests", "a.log", "--json=1"] => /--json takes no value, and "1" is given/,
      ["report"] => /give one FILE to show, or the PID or NAME of a process/,
      ["version", "now"] => /version takes no arguments \("now"\)/,
      ["ps", "now"] => /ps takes no arguments \("now"\)/,
      ["top"] => /give the PID or NAME of a process:\n\n(?: *PID +RSS|No Ruby process)/,
      ["start", "--timeout", "soon", "1"] => /--timeout is "soon"; it must be a number of seconds above 0/,
      ["top", "--older-than", "2", "--workers", "1"] => /--older-than-gcs cannot be added up over processes/
    }.each do |argv, message|
      it "memintro #{argv.join(' ')} gets an error, with exit code 2" do
        code, output, error = cli(*argv)
        expect([code, output]).to eq([2, ""])
        expect(error).to start_with("memintro: ").and match(message)
      end
    end
  end

  describe "what does not work" do
    before { allow(File).to receive(:exist?).and_call_original }

    it "is a missing hook: exit code 1, and what to do" do
      allow(File).to receive(:exist?).with(Memintro::Paths.hook).and_return(false)
      code, _, error = cli("run", "ls")
      expect(code).to eq(1)
      expect(error).to match(/\Amemintro: the hook is not built: there is no .*run bin\/setup/)
    end

    it "is an error before the command runs, for a report that cannot be written" do
      allow(File).to receive(:exist?).with(Memintro::Paths.hook).and_return(true)
      code, _, error = cli("run", "--report", "/nowhere/%p.txt", "ls")
      expect([code, error]).to eq([1, "memintro: --report /nowhere/%p.txt: there is no folder /nowhere\n"])
    end

    it "is --native-children without a file for each" do
      allow(File).to receive(:exist?).with(Memintro::Paths.hook).and_return(true)
      [[], %w[--report r.txt], %w[--report -]].each do |flags|
        expect(described_class.start(["env", "--native-children", *flags], out: out, err: err)).to eq(1)
      end
      expect(err.string.lines.uniq).to eq(["memintro: --native-children needs a file for each process: give --report " \
                                           "FILE with %p in it\n"])
    end

    it "is a file that cannot be shown" do
      expect(cli("report", "/nowhere")).to eq([1, "", "memintro: /nowhere: No such file or directory\n"])
      err.truncate(0)
      err.rewind
      expect(cli("report", __FILE__)[2]).to match(/#{__FILE__}: neither a raw dump nor a JSON report/)
    end
  end

  it "takes a closed pipe as success" do
    allow(out).to receive(:puts).and_raise(Errno::EPIPE)
    expect(cli("--version")).to eq([0, "", ""])
  end

  it "ends quietly when interrupted" do
    allow(out).to receive(:puts).and_raise(Interrupt)
    expect(cli("--version")).to eq([130, "", ""])
  end
end
