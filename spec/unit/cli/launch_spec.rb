# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro/cli"
require "memintro/cli/commands/env"
require "shellwords"
require "stringio"

RSpec.describe Memintro::CLI::Launch do
  let(:hook) { Memintro::Paths.hook }
  let(:autorun) { Memintro::Paths::AUTORUN }

  around do |example|
    former = ENV.to_h.slice("LD_PRELOAD", "RUBYOPT", "TMPDIR")
    ENV.update("LD_PRELOAD" => nil, "RUBYOPT" => nil)
    example.run
  ensure
    ENV.update({ "LD_PRELOAD" => nil, "RUBYOPT" => nil, "TMPDIR" => nil }.merge(former))
  end

  before do
    allow(File).to receive(:file?).and_call_original
    allow(File).to receive(:file?).with(hook).and_return(true)
  end

  # The output of `memintro env`.
  def env(*argv)
    out = StringIO.new
    expect(Memintro::CLI.start(["env", *argv], out: out, err: out)).to eq(0), out.string
    out.string
  end

  it "puts the hook first and keeps what was there, once" do
    expect(Memintro::Paths.before("a", nil, ":")).to eq("a")
    expect(Memintro::Paths.before("a", "b:c", ":")).to eq("a:b:c")
    expect(Memintro::Paths.before("a", "b:a::c", ":")).to eq("a:b:c")
  end

  it "has a variable for each flag, and an absolute path for the report" do
    settings = described_class.new(report: "r.txt", top: :all, native_children: true, every: 1.5).settings
    expect(settings).to eq("MEMINTRO_MODE" => "full", "MEMINTRO_REPORT" => File.expand_path("r.txt"),
                           "MEMINTRO_TOP" => "all", "MEMINTRO_NATIVE_CHILDREN" => "1", "MEMINTRO_EVERY" => "1.5")
    expect(described_class.new(report: "-").settings).to include("MEMINTRO_REPORT" => "-")
  end

  describe "memintro env" do
    it "prints one line that a shell reads back as it was meant" do
      ENV.update("LD_PRELOAD" => "/usr/lib/libjemalloc.so.2", "RUBYOPT" => "-W0")
      line = env("--report", "/tmp/a b'$x%p.txt", "--top", "5")
      expect(line.lines.size).to eq(1)
      expect(Shellwords.split(line).to_h { |pair| pair.split("=", 2) }).to eq(
        "LD_PRELOAD" => "#{hook}:/usr/lib/libjemalloc.so.2", "MEMINTRO_MODE" => "full",
        "MEMINTRO_REPORT" => "/tmp/a b'$x%p.txt", "MEMINTRO_RUBIES" => RUBY_VERSION[/\A\d+\.\d+/],
        "MEMINTRO_TOP" => "5", "RUBYOPT" => "-r#{autorun} -W0"
      )
    end

    it "prints a Dockerfile's line, which keeps what the image has" do
      expect(env("--for", "docker", "--report", "/tmp/a $b\"%p")).to eq(
        "ENV LD_PRELOAD=\"#{hook}${LD_PRELOAD:+:$LD_PRELOAD}\" MEMINTRO_MODE=full " \
        "MEMINTRO_REPORT=\"/tmp/a \\$b\\\"%p\" RUBYOPT=\"-r#{autorun}${RUBYOPT:+ $RUBYOPT}\"\n"
      )
    end

    # All that means something in one of the three syntaxes, in a file's name.
    let(:awkward) { %q(/tmp/a $b ${c:+d} "e" 'f' \\\\ \\" \\$g \\n %p %% #h `i` !j é \\) }
    let(:flags) { ["--report", awkward, "--compat", "mwrap", "--top", "5", "--stop-after", "1.5"] }
    let(:meant) do
      { "LD_PRELOAD" => hook, "MEMINTRO_MODE" => "full", "MEMINTRO_REPORT" => awkward, "MEMINTRO_COMPAT" => "mwrap",
        "MEMINTRO_TOP" => "5", "MEMINTRO_STOP_AFTER" => "1.5", "RUBYLIB" => Memintro::Paths::COMPAT,
        "RUBYOPT" => "-r#{autorun}" }
    end

    it "prints a Dockerfile's line that is read back unchanged, in any image" do
      line = env("--for", "docker", *flags).force_encoding("UTF-8")
      expect(DockerfileEnv.read(line)).to eq(meant)
      before = { "LD_PRELOAD" => "/usr/lib/libjemalloc.so.2", "RUBYOPT" => "-W0", "RUBYLIB" => "/srv/lib" }
      expect(DockerfileEnv.read(line, before)).to eq(
        meant.merge("LD_PRELOAD" => "#{hook}:/usr/lib/libjemalloc.so.2", "RUBYOPT" => "-r#{autorun} -W0",
                    "RUBYLIB" => "#{Memintro::Paths::COMPAT}:/srv/lib")
      )
    end

    it "prints a systemd unit's line, in which % begins a specifier" do
      expect(env("--for", "systemd", "--report", "/tmp/a \"%p")).to eq(
        "Environment=\"LD_PRELOAD=#{hook}\" \"MEMINTRO_MODE=full\" \"MEMINTRO_REPORT=/tmp/a \\\"%%p\" " \
        "\"RUBYOPT=-r#{autorun}\"\n"
      )
    end

    it "prints a systemd unit's line that systemd reads as it was meant" do
      skip "systemd-analyze is not installed" unless system("systemd-analyze", "--version", %i[out err] => File::NULL)
      Dir.mktmpdir do |folder|
        unit = File.join(folder, "memintro-spec.service")
        File.write(unit, <<~UNIT)
          [Service]
          ExecStart=/bin/true
          Environment=SPEC_PROBE=1
          #{env('--for', 'systemd', *flags).force_encoding('UTF-8')}
        UNIT
        # Where it says all it does, it prints the unit as it was read.
        result = run_command("systemd-analyze", "--man=no", "verify", unit, env: { "SYSTEMD_LOG_LEVEL" => "debug" })
        read = result.stdout.scan(/^\s+Environment: (\w+)=(.*)$/).to_h
        skip "systemd-analyze does not say what it read: #{result.stderr.lines.last}" unless read.delete("SPEC_PROBE")
        expect(read).to eq(meant)
        expect(result.stderr).not_to match(/memintro-spec.service:\d+:/)
      end
    end
  end

  describe "a path that LD_PRELOAD cannot express" do
    let(:temporary) { Dir.mktmpdir }
    let(:folder) { File.join(temporary, "with space").tap { |path| Dir.mkdir(path) } }

    before do
      ENV["TMPDIR"] = temporary
      stub_const("Memintro::Paths::AUTORUN", File.join(folder, "autorun.rb"))
      allow(Memintro::Paths).to receive(:hook).and_return(File.join(folder, "hook.so"))
    end

    after { FileUtils.rm_rf(temporary) }

    it "is reached through one link in a folder of the user's own, however often" do
      launches = Array.new(2) { described_class.new({}) }
      paths = launches.map { |launch| [launch.hook, launch.require_flag.delete_prefix("-r")] }
      expect(paths.uniq.size).to eq(1)
      expect(paths.first).to all(match(/\A\S+\z/))
      expect(paths.first.map { |path| File.join(File.realpath(File.dirname(path)), File.basename(path)) })
        .to eq([File.join(folder, "hook.so"), File.join(folder, "autorun.rb")])
      own = File.join(temporary, "memintro-#{Process.uid}")
      expect([File.stat(own).mode & 0o777, Dir.children(own).size]).to eq([0o700, 1])
    end

    it "is not reached through a folder that others can write to" do
      FileUtils.mkdir(File.join(temporary, "memintro-#{Process.uid}"), mode: 0o777)
      File.chmod(0o777, File.join(temporary, "memintro-#{Process.uid}"))
      expect { described_class.new({}).hook }
        .to raise_error(Memintro::CLI::Failure, /exists and is not this user's alone; remove it, or set TMPDIR/)
    end
  end
end
