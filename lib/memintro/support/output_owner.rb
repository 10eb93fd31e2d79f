# frozen_string_literal: true

require_relative "files"

module Memintro
  # Decides which process may write an output file FILE that several processes would write. {#owner?} is the decision;
  # the other processes write FILE.PID. If the name has %p, there is nothing to decide: each process has its own file.
  #
  # There are two policies, because a report belongs to a run of any number of programs, and the figures of
  # `memintro snapshot -- CMD` and the like belong to CMD:
  #
  # | | `:first_free`: reports | `:appointed`: what `snapshot`, `diff`, `iseqs`, `histogram` write for a CMD |
  # |---|---|---|
  # | owner | the first process that finds FILE free | the process that becomes CMD; else the first that loads this |
  # | how others know it | the claim | the variable |
  # | the owner becomes another program | it stays the owner | it stays the owner |
  # | a forked child | is not the owner | is not the owner |
  # | the daemon that the owner becomes | is the owner ({#renew}) | is not the owner |
  # | the owner was killed before it wrote | the next process is the owner | there is none |
  # | FILE is from an earlier run | it stays until the owner has written | it stays until the owner has written |
  # | FILE is from this run | there is no other owner | the owner writes it again |
  #
  # The claim is a symbolic link FILE.memintro-claim that names the process in its target. It is beside FILE, so that an
  # earlier FILE stays intact if the owner is killed. It goes when FILE has been written; the hook removes it after a
  # raw dump (crates/hook/src/dump_file.rs). A claim whose process has ended does not count.
  #
  # @api private
  class OutputOwner
    # The variable of each policy holds the id of the owner, which may become another program; of a report FILE as well.
    VARIABLES = { first_free: "MEMINTRO_REPORT_HOLDER", appointed: "MEMINTRO_FIRST_PID" }.freeze
    # Holds when `memintro run` or `env` began, or the first process that was not started by them.
    SINCE = "MEMINTRO_SINCE"
    # The suffix of FILE, and the target of the link before the process id. The hook has the same texts.
    CLAIM = ".memintro-claim"
    TARGET = "memintro-report-of-process-"
    # Tries to get the folder's lock, and seconds between them.
    TRIES = 100
    BETWEEN = 0.01
    private_constant :CLAIM, :TARGET, :TRIES, :BETWEEN

    # @return [String] a value of {SINCE}
    def self.now
      format("%.6f", Time.now.to_f)
    end

    # @param path [String] FILE. Other names can be given to {#file} if the policy is `:appointed`.
    # @param policy [Symbol] a key of {VARIABLES}
    def initialize(path, policy)
      @path = path
      @claim = "#{path.b}#{CLAIM}".b
      @variable = VARIABLES.fetch(policy)
      @first_free = policy == :first_free
      @pid = Native.kernel_pid
      return if path.include?("%p")

      @first_free ? begin_run : ENV[@variable] ||= sign
      @owner = ENV[@variable]&.b == sign
    end

    # @return [Boolean] whether the forked child that follows goes on for its parent
    attr_writer :heir

    # @param name [String] FILE
    # @return [String] the file of this process: FILE with its id for %p, FILE itself, or FILE.PID
    # @raise [SystemCallError] if nothing can be written there
    def file(name = @path)
      pid = Native.kernel_pid.to_s
      return name.gsub("%p", pid) if name.include?("%p")

      owner? ? name : name.dup.concat(".", pid)
    end

    # @return [Boolean] whether this process may write FILE
    # @raise [SystemCallError] if nothing can be written there
    def owner?
      become_child unless @pid == Native.kernel_pid || @heir
      return @owner if @owner || !@first_free

      @owner = locked { free? && claim }
      ENV[@variable] = sign if @owner
      @owner
    end

    # The process goes on under another id, by Process.daemon.
    # @return [nil]
    def renew
      return unless @owner && @first_free

      @pid = Native.kernel_pid
      ENV[@variable] = sign
      claim if File.symlink?(@claim)
      nil
    rescue SystemCallError
      nil
    end

    # Removes the claim, because FILE has been written, or cannot be written.
    # @return [nil]
    def release
      Files.remove(@claim) if @first_free && @owner && File.readlink(@claim) == target
      nil
    rescue SystemCallError
      nil # there is none
    end

    private

    def begin_run
      @since = Float(ENV[SINCE] ||= self.class.now, exception: false) || Time.now.to_f
    end

    # @return [String] the value of the variable if this process is the owner
    def sign
      @first_free ? "#{@pid} #{@path.b}".b : @pid.to_s
    end

    def become_child
      @pid = Native.kernel_pid
      @owner = false
    end

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

    # The claim is read before FILE, because an owner writes FILE before it removes the claim.
    def free?
      !claimed? && File.lstat(@path).mtime.to_f < @since
    rescue Errno::ENOENT
      true
    end

    def claimed?
      holder = File.readlink(@claim).b[/\A#{TARGET}(\d+)\z/, 1]
      !holder.nil? && alive?(Integer(holder, 10))
    rescue Errno::ENOENT, Errno::EINVAL, Errno::ENAMETOOLONG
      false
    end

    def alive?(pid)
      return false if pid == @pid

      Process.kill(0, pid)
      true
    rescue Errno::ESRCH
      false
    rescue SystemCallError
      true # another user's
    end

    # A file system without links, and a name too long for a claim, have none: FILE.PID would be too long as well. A
    # file that somebody else has put there stays.
    def claim
      return true if File.exist?(@claim)

      beside = Files.beside(@claim)
      File.symlink(target, beside)
      File.rename(beside, @claim)
      true
    rescue Errno::EPERM, Errno::EOPNOTSUPP, Errno::ENAMETOOLONG
      true
    ensure
      Files.remove(beside) if beside
    end

    def target
      "#{TARGET}#{Native.kernel_pid}"
    end
  end
end
