# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# What `memintro ps` makes of a /proc that hides processes: that something is not there proves nothing.
RSpec.describe "memintro ps under hidepid", :listening do
  NOBODYS_ID = 65_534
  AS_NOBODY = %w[setpriv --reuid=65534 --regid=65534 --clear-groups].freeze
  # The group 0 would be let through.
  AS_WEAK_ROOT = %w[setpriv --regid=65534 --clear-groups --bounding-set=-sys_ptrace,-kill --inh-caps=-all].freeze
  HIDING = "mount -t proc -o hidepid=2 proc /proc || exit 99; exec \"$@\""
  UNSEEN = "test -e /proc/$0 && exit 98; exec \"$@\""

  before do
    skip "only root can mount" unless Process.uid.zero?
    File.chown(NOBODYS_ID, NOBODYS_ID, socket_folder)
  end

  # The command, run in this way, where /proc does not show the process.
  def list(pid, user, *arguments)
    result = run_command("unshare", "--mount", "sh", "-c", HIDING, "sh", *user, "sh", "-c", UNSEEN, pid.to_s,
                         RbConfig.ruby, Subprocess::EXE, "ps", *arguments, env: listening_env)
    skip "mounts are refused here: #{result.stderr}" if result.status.exitstatus == 99 || result.stderr[/^unshare:/]
    skip "this checkout is not readable to others" if /LoadError|Permission denied @ rb_sysopen/.match?(result.stderr)
    expect(result.status.exitstatus).not_to eq(98), "process #{pid} is in that /proc, after all"
    result.must_succeed.stdout
  end

  # A process that has changed to the user nobody without another program: the kernel hides it from its own user, too.
  def hidden_from_its_user
    become = "Process::Sys.setresgid(*[#{NOBODYS_ID}] * 3); Process::Sys.setresuid(*[#{NOBODYS_ID}] * 3)"
    start_program("#{become}; Memintro.listen(name: 'web'); puts :ready; sleep")
  end

  [["this user's own", AS_NOBODY, []], ["another user's", AS_WEAK_ROOT, ["--user", "all"]]].each do |whose, user, flags|
    it "takes no process for dead that is #{whose} and listens, and leaves its socket" do
      program = hidden_from_its_user
      2.times { expect(list(program.pid, user, *flags)).to match(/^ *#{program.pid} .* web +-e$/) }
      expect(sockets).to eq(["#{program.pid}.sock"])
      program.kill(:STOP)
      expect(list(program.pid, user, *flags)).to match(/process #{program.pid} /)
      expect(sockets).to eq(["#{program.pid}.sock"])
    end

    it "removes what a killed process has left that was #{whose}" do
      program = hidden_from_its_user
      program.kill
      program.wait
      expect(list(program.pid, user, *flags)).not_to match(/\b#{program.pid}\b/)
      expect(sockets).to eq([])
    end
  end
end
