# frozen_string_literal: true

require_relative "files"

module Memintro
  # Decides which of several processes writes FILE if FILE has no %p: the first one that finds it free. The others write
  # FILE.PID.
  #
  # The process that has FILE puts a dangling link there that names the process, until the report replaces it, so that
  # readers never find an incomplete file. A file counts as free if it is older than the run, and a link if its process
  # has ended.
  #
  # @api private
  class OutputClaim
    # Holds the id of the process that has FILE, which may become another program.
    HOLDER = "MEMINTRO_REPORT_HOLDER"
    # Holds when `memintro run` or `env` began, or the first process that was not started by them.
    SINCE = "MEMINTRO_SINCE"
    # What links lead to, before the process id.
    LINK = "memintro-report-of-process-"
    # Tries to get the folder's lock, and seconds between them.
    TRIES = 100
    BETWEEN = 0.01
    private_constant :LINK, :TRIES, :BETWEEN

    # @return [String] a value of {SINCE}
    def self.now
      format("%.6f", Time.now.to_f)
    end

    # @param path [String]
    def initialize(path)
      @path = path
      @since = Float(ENV[SINCE] ||= self.class.now, exception: false) || Time.now.to_f
      @held = ENV[HOLDER] == Native.kernel_pid.to_s
    end

    # @return [Boolean] whether FILE is this process's
    # @raise [SystemCallError] if nothing can be written there
    def take
      @held ||= locked { free? && point }
      ENV[HOLDER] = Native.kernel_pid.to_s if @held
      @held
    end

    # In a forked child: FILE belongs to the parent.
    # @return [nil]
    def forget
      @held = false
      nil
    end

    # The process goes on under another id, by Process.daemon.
    # @return [nil]
    def renew
      return unless @held

      ENV[HOLDER] = Native.kernel_pid.to_s
      point if File.symlink?(@path)
      nil
    rescue SystemCallError
      nil
    end

    # Restores FILE, because nothing could be written.
    # @return [nil]
    def release
      Files.remove(@path) if @held && File.readlink(@path) == link
      nil
    rescue SystemCallError
      nil # there is a report
    end

    private

    # Only one process at a time: locking the folder leaves no file behind. If the folder cannot be locked, processes
    # that start at the same instant may use the same FILE.
    def locked
      folder = open_folder
      TRIES.times { folder.flock(File::LOCK_EX | File::LOCK_NB) ? break : sleep(BETWEEN) } if folder
      yield
    ensure
      folder&.close
    end

    def open_folder
      folder = File.open(File.dirname(@path))
      folder.flock(File::LOCK_EX | File::LOCK_NB)
      folder
    rescue SystemCallError
      folder&.close
      nil
    end

    def free?
      found = File.lstat(@path)
      holder = found.symlink? && File.readlink(@path)[/\A#{LINK}(\d+)\z/, 1]
      return gone?(Integer(holder, 10)) if holder

      found.mtime.to_f < @since
    rescue Errno::ENOENT
      true
    end

    def gone?(pid)
      return true if pid == Native.kernel_pid

      Process.kill(0, pid)
      false
    rescue Errno::ESRCH
      true
    rescue SystemCallError
      false # another user's
    end

    def point
      beside = Files.beside(@path)
      File.symlink(link, beside)
      File.rename(beside, @path)
      true
    rescue Errno::EPERM, Errno::EOPNOTSUPP
      true # no links on this file system
    ensure
      Files.remove(beside)
    end

    def link
      "#{LINK}#{Native.kernel_pid}"
    end
  end
end
