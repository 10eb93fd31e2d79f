# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/value_object"
require_relative "../support/units"
require_relative "../support/untracked_text"

module Memintro
  # Memory of any process that this user may read, in bytes. The process is not changed and not stopped. Each method
  # reads /proc again, which costs 20 to 50 µs; pss and uss cost as much as {ProcessFigures#pss}. Other threads run
  # meanwhile.
  #
  # A process that has ended, and that its parent has not waited for, has no memory: 0. If the id now belongs to another
  # process, {NoProcessError} is raised.
  #
  # @example
  #   server = Memintro::ProcessMemory.new(File.read("tmp/pids/puma.pid").to_i, children: true)
  #   server.pss    # => 734_003_200, the master and all its workers, each page once
  #   server.pids   # => [812, 830, 831]
  class ProcessMemory
    include ByName
    prepend UntrackedText

    # Names of the figures, in the order of {#to_h}.
    FIGURES = %i[rss peak_rss pss uss swap vsize].freeze
    # See {ByName}.
    ATTRIBUTES = FIGURES
    # The place of each figure in the extension's answer.
    PLACES = { rss: [:sizes, 0], vsize: [:sizes, 1], peak_rss: [:peaks, 0], swap: [:peaks, 1], pss: [:shares, 0],
               uss: [:shares, 1], swap_pss: [:shares, 2] }.each_value(&:freeze).freeze
    private_constant :PLACES

    # Returns the largest peak RSS of all processes that this process has started and waited for, and of those that
    # these have waited for. Even the shortest process is included. A child is a copy of its parent until it executes
    # another program, so the parent's RSS of that time is included.
    #
    # @return [Integer] bytes; 0 if there was no such process. Costs a microsecond.
    # @example
    #   system("convert", "photo.png", "photo.jpg")
    #   Memintro::ProcessMemory.waited_peak_rss   # => 187_432_960
    def self.waited_peak_rss = Native.waited_peak_rss

    # @return [Integer]
    attr_reader :pid

    # @param pid [Integer] as `ps` shows it
    # @param children [Boolean] add up all its descendants too, whichever there are at each reading
    # @raise [ArgumentError, TypeError] if that is no process id
    # @raise [NoProcessError] if there is no such process
    # @raise [ForbiddenError] if /proc hides it from this user
    # @raise [ProcError] without /proc
    def initialize(pid, children: false)
      @pid = Arguments.count(:pid, pid, least: 1, most: (2**31) - 1)
      @children = children ? true : false
      @started = allowed { Native.process_started(pid) }
      freeze
    end

    # @return [Boolean] whether descendants are added up
    def children?
      @children
    end

    # @return [Array<Integer>] ids of the processes that are looked at: its own first, then those of descendants
    # @raise [NoProcessError]
    def pids
      return [@pid] unless @children

      Native.process_sizes(@pid, @started)
      Native.process_tree(@pid)
    end

    # Returns the memory in RAM. With `children`, a page that several of them share counts several times; {pss} counts
    # it once.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def rss
      figure(:rss)
    end

    # Returns the peak of {rss}; with `children` the sum of the peaks, which were at different times.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def peak_rss
      figure(:peak_rss)
    end

    # Returns the proportional share of the memory in RAM. With `children`, a page that they share counts once.
    # @return [Integer]
    # @raise [NoProcessError]
    # @raise [ForbiddenError] if it is another user's
    def pss
      figure(:pss)
    end

    # Returns the memory that no other process shares. With `children`, a page that two of them share counts in none.
    # @return [Integer]
    # @raise [NoProcessError]
    # @raise [ForbiddenError] if it is another user's
    def uss
      figure(:uss)
    end

    # Returns what was swapped out. With `children`, proportionally, so that a page that they share counts once.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def swap
      figure(@children ? :swap_pss : :swap)
    end

    # Returns the size of the whole address space.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def vsize
      figure(:vsize)
    end

    # Returns the figure to compare with a limit: {rss}, or with `children` {pss}.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def bytes
      @children ? pss : rss
    end

    # Returns all figures. RSS, PSS and USS (with `children` also swap) come from one walk of each process's pages, so
    # that USS is never above PSS, and PSS never above RSS, even if the process grows meanwhile. {rss} alone is a
    # counter of the kernel, which may be wrong by some hundred KiB. The other figures are read directly afterwards. If
    # the kernel's peak is below this RSS, this RSS is returned as the peak.
    #
    # @return [Hash{Symbol => Integer}]
    # @raise [NoProcessError, ForbiddenError]
    def to_h
      (pss, uss, swap_pss, rss), (peak, swap), (_, vsize) = read_together(:shares, :peaks, :sizes)
      { rss: rss, peak_rss: [peak, rss].max, pss: pss, uss: uss, swap: @children ? swap_pss : swap, vsize: vsize }
    end

    # @return [String] one short line; also where the process is gone
    def inspect
      seen = begin
        "#{@children ? 'pss' : 'rss'} #{Units.bytes(bytes)}"
      rescue Error
        "not to be seen"
      end
      "#<#{self.class} #{@pid}#{' and its children' if @children}, #{seen}>"
    end
    alias to_s inspect

    private

    def figure(name)
      file, place = PLACES.fetch(name)
      read_together(file).dig(0, place)
    end

    # Reads these files of a process, one directly after the other; with descendants, returns the sums.
    def read_together(*files)
      own = files.map { |file| read(file, @pid, @started) }
      return own unless @children

      (Native.process_tree(@pid) - [@pid]).reduce(own) do |sums, pid|
        sums.zip(files.map { |file| read(file, pid, nil) }).map { |sum, more| sum.zip(more).map(&:sum) }
      rescue NoProcessError
        sums # it ended meanwhile
      rescue ForbiddenError
        # For a moment the kernel also refuses a process that is ending.
        ending?(pid) ? sums : raise
      end
    end

    # A bit of the kernel's task flags: the task is exiting (PF_EXITING).
    EXITING = 4
    private_constant :EXITING

    def ending?(pid)
      File.binread("/proc/#{pid}/stat")[/\) \S(?: -?\d+){5} (\d+)/, 1].to_i & EXITING != 0
    rescue SystemCallError
      true
    end

    def read(file, pid, started)
      allowed do
        case file
        when :sizes then Native.process_sizes(pid, started)
        when :peaks then Native.process_peaks(pid, started)
        else Native.process_shares(pid, started)
        end
      end
    end

    # The usual message tells the user to become root, which does not help root.
    def allowed
      yield
    rescue ForbiddenError => e
      raise unless Process.euid.zero?

      raise ForbiddenError, "root may not read #{e.message[/\A\S+/]}: the capability CAP_SYS_PTRACE is missing (in a " \
                            "container, add --cap-add=SYS_PTRACE), or a security module forbids it"
    end
  end
end
