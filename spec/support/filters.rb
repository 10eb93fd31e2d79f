# frozen_string_literal: true

require_relative "native_programs"

# Filters of system calls (seccomp), as spec/fixtures/modules/filter.c installs them.
module Filters
  KILL = 0x8000_0000
  ALLOW = 0x7fff_0000
  EPERM = 0x5_0000 | Errno::EPERM::Errno
  ENOSYS = 0x5_0000 | Errno::ENOSYS::Errno
  LISTS = File.join(Subprocess::ROOT, "spec", "fixtures", "filters")

  module_function

  # Those of systemd's @system-service, of Docker, and of a sandbox that refuses everything unusual. Each as the
  # arguments of `Filter.install`, one after the other.
  def all
    clone3 = numbers("clone3")
    docker, service, usual = %w[docker system_service usual].map { |name| numbers(*list(name)) }
    {
      "systemd's @system-service" => [[service, ALLOW, KILL]],
      # It answers ENOSYS to clone3, so that the C library calls clone, whose flags can be judged.
      "Docker's profile" => [[docker + clone3, ALLOW, EPERM], [clone3, ENOSYS, ALLOW]],
      "a sandbox that refuses with EPERM" => [[usual, ALLOW, EPERM]],
      "a sandbox that refuses with ENOSYS" => [[usual, ALLOW, ENOSYS]]
    }
  end

  # The file to require for `Filter.install`.
  def extension = NativePrograms.extension("filter.c")

  # Their numbers on this machine, without those that it does not have.
  def numbers(*names)
    source = "#include <sys/syscall.h>\n#{names.map { |name| "memintro SYS_#{name}" }.join("\n")}"
    output, status = Open3.capture2e("gcc", "-E", "-P", "-x", "c", "-", stdin_data: source)
    raise "no numbers of system calls:\n#{output}" unless status.success?

    output.scan(/^memintro (\d+)$/).flatten.map(&:to_i)
  end

  # Names from a file of spec/fixtures/filters.
  def list(name) = File.read(File.join(LISTS, "#{name}.txt")).gsub(/^#.*/, "").split
end
