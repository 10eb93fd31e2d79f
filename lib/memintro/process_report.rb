# frozen_string_literal: true

require_relative "after_fork"
require_relative "complaint"
require_relative "paths"
require_relative "settings"

module Memintro
  # The report that a process writes about itself, at its end and, if asked, every so often. Used by memintro/autorun.
  #
  # A file is written beside its final name and renamed, so that a reader never sees half of one, and is its owner's
  # alone: paths and sizes may tell more than the program's users should know.
  class ProcessReport
    include Complaint

    # Holds the id of the process that takes FILE itself where FILE has no %p.
    FIRST_PID = "MEMINTRO_FIRST_PID"

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @warned = false
    end

    # @return [nil]
    def install
      ENV[FIRST_PID] ||= Process.pid.to_s
      # For `require "memintro"` in a program whose bundle does not have it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      answer_for_mwrap if @configuration.compat == :mwrap
      Memintro.tracking? ? go_on : Memintro.start
      begin_process
      AfterFork.install { begin_process }
      at_exit { Memintro.untracked { write_last } }
      nil
    end

    # @return [String, nil] this process's file; nil if the report goes to standard error
    def file
      pattern = @configuration.report
      return if pattern.nil? || pattern == "-"

      pid = Process.pid.to_s
      return pattern.gsub("%p", pid) if pattern.include?("%p")

      pid == ENV[FIRST_PID] ? pattern : "#{pattern}.#{pid}"
    end

    # Writes the report of now. Whatever goes wrong is told once and does not disturb the program.
    # @return [Boolean] whether it was written
    def write
      Memintro.untracked do
        path = file
        next render(STDERR) unless path

        replaceable?(path) ? replace(path) : File.open(path, "a") { |io| render(io) }
      end
      true
    rescue StandardError => e
      tell_once(e)
      false
    end

    private

    # A preloaded hook has tracked since the process started, and Ruby has allocated much since then.
    def go_on
      StopTimer.set(@configuration.stop_after)
      # Of these only the bytes are exact in each mode.
      return if Memintro.thread_totals.allocated_bytes.positive?

      raise NotSeenError, "#{Native.allocator || 'another library'} answers malloc before memintro's hook, so " \
                          "nothing is seen: put the hook first in LD_PRELOAD, as `memintro run` does"
    end

    def begin_process
      path = file
      Native.dump_at_exit(path && replaceable?(path) ? path : nil)
      repeat if @configuration.every
    rescue StandardError => e
      tell_once(e)
    end

    def write_last
      return unless wanted?

      # A report says more than the raw dump that would follow it to the same file.
      Native.dump_at_exit(nil) if write
    end

    # Programs written for mwrap expect to be alone with their output.
    def wanted?
      !(@configuration.compat == :mwrap && @configuration.report.nil?)
    end

    def repeat
      seconds = @configuration.every
      @thread = Thread.new do
        Native.untracked_enter
        loop do
          sleep(seconds)
          write
        end
      end
      @thread.name = "memintro-report"
      @thread.report_on_exception = false
    end

    def replace(path)
      beside = "#{path}.#{Process.pid}.tmp"
      open_new(beside) { |io| render(io) }
      File.rename(beside, path)
    rescue StandardError
      remove(beside)
      raise
    end

    # To rename something over /dev/null, a named pipe or the like would be a disaster.
    def replaceable?(path)
      return false if path.start_with?("/dev/", "/proc/")

      found = File.lstat(path)
      found.file? || found.symlink?
    rescue Errno::ENOENT
      true
    end

    # Never follows a link that somebody put there, nor writes into a file that was there.
    def open_new(path, &block)
      remove(path)
      File.open(path, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW, 0o600, &block)
    end

    def remove(path)
      File.unlink(path)
    rescue SystemCallError
      nil
    end

    def render(io)
      format = @configuration.format
      top = @configuration.top || Report.default_top(format)
      Memintro.report(io, format: format, top: top == :all ? nil : top, by: @configuration.by,
                          app_root: @configuration.app_root)
    end

    # Required at once: a `require "mwrap"` is then answered even where the bundle has a gem of that name in front.
    def answer_for_mwrap
      $LOAD_PATH.unshift(Paths::COMPAT)
      require File.join(Paths::COMPAT, "mwrap.rb")
    end

    def tell_once(error)
      complain_once("no report of process #{Process.pid}: #{error.message}")
    end
  end
end
