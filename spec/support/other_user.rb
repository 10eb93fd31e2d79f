# frozen_string_literal: true

# Runs Ruby as a user who may not look at other users' memory.
module OtherUser
  NOBODY = %w[setpriv --reuid=65534 --regid=65534 --clear-groups].freeze

  # before: a shell command that root runs first, in a mount name space of its own
  def run_ruby_as_nobody(code, *arguments, before: nil)
    skip "only root can become another user" unless Process.uid.zero?
    ruby = [*NOBODY, RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", code, "--", *arguments.map(&:to_s)]
    command = before ? ["unshare", "--mount", "sh", "-c", "#{before} || exit 99; exec \"$@\"", "sh", *ruby] : ruby
    result = run_command(*command)
    # In a chroot, say, mounts cannot be taken out of their propagation; with it, they would reach the whole machine.
    refused = result.status.exitstatus == 99 || result.stderr.start_with?("unshare:")
    skip "mounts are refused here: #{result.stderr}" if refused
    skip "this checkout is not readable to others" if /LoadError|Permission denied @ rb_sysopen/.match?(result.stderr)
    result.must_succeed
  end

  def run_memintro_as_nobody(*arguments)
    skip "only root can become another user" unless Process.uid.zero?
    result = run_command(*NOBODY, RbConfig.ruby, Subprocess::EXE, *arguments)
    skip "this checkout is not readable to others" if /LoadError|Permission denied @ rb_sysopen/.match?(result.stderr)
    result
  end
end
