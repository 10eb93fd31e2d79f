# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/value_object"
require_relative "../support/units"
require_relative "../support/untracked_text"

module Memintro
  # Memory of any process that this user may look at, in bytes. Nothing is sent to it or loaded into it; it is not even
  # stopped. Each method reads /proc anew, which costs 20 to 50 µs, for pss and uss what {ProcessFigures#pss} costs.
  # Other threads run meanwhile.
  #
  # A process that has ended but was not waited for has no memory: 0. When the id is another process's by now, that is
  # found out.
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
    # Where each figure is found among what the extension answers.
    PLACES = { rss: [:sizes, 0], vsize: [:sizes, 1], peak_rss: [:peaks, 0], swap: [:peaks, 1], pss: [:shares, 0],
               uss: [:shares, 1], swap_pss: [:shares, 2] }.each_value(&:freeze).freeze
    private_constant :PLACES

    # The most RSS that one process has had of all that this process has started and waited for, or one of those that
    # these have. Nothing escapes it, however short. A child is a copy of its parent until it becomes another program:
    # what the parent had then is among it.
    #
    # @return [Integer] bytes; 0 if there was no such process. Costs a microsecond.
    # @example
    #   system("convert", "photo.png", "photo.jpg")
    #   Memintro::ProcessMemory.waited_peak_rss   # => 187_432_960
    def self.waited_peak_rss
      Native.waited_peak_rss
    end

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

    # Memory in RAM. With `children`, a page that several of them share counts several times: {pss} is the honest sum.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def rss
      figure(:rss)
    end

    # The most that rss has been; with `children` the sum of what each one had at its own worst time.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def peak_rss
      figure(:peak_rss)
    end

    # Proportional share of the memory in RAM. With `children`, a page that they share counts once.
    # @return [Integer]
    # @raise [NoProcessError]
    # @raise [ForbiddenError] if it is another user's
    def pss
      figure(:pss)
    end

    # Memory that it shares with nobody. With `children`, what two of them share is in none.
    # @return [Integer]
    # @raise [NoProcessError]
    # @raise [ForbiddenError] if it is another user's
    def uss
      figure(:uss)
    end

    # What was swapped out. With `children`, proportionally: what they share counts once.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def swap
      figure(@children ? :swap_pss : :swap)
    end

    # The whole address space.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def vsize
      figure(:vsize)
    end

    # The one figure to compare with a limit: {rss}, with `children` {pss}.
    # @return [Integer]
    # @raise [NoProcessError, ForbiddenError]
    def bytes
      @children ? pss : rss
    end

    # All figures. RSS, PSS and USS (with `children` swap, too) are those of one walk of each process's pages, so that
    # USS is never above PSS nor PSS above RSS, however fast the process grows meanwhile; {rss} alone is a counter of
    # the kernel's, which may be some hundred KiB off. The others are read right after, and a peak that the kernel has
    # counted as less than this RSS is taken to be this RSS.
    #
    # @return [Hash{Symbol => Integer}]
    # @raise [NoProcessError, ForbiddenError]
    def to_h
      (pss, uss, swap_pss, rss), (peak, swap), (_, vsize) = at_once(:shares, :peaks, :sizes)
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
      at_once(file).dig(0, place)
    end

    # What these files say of a process, one right after the other; of all together, if descendants are added up.
    def at_once(*files)
      own = files.map { |file| read(file, @pid, @started) }
      return own unless @children

      (Native.process_tree(@pid) - [@pid]).reduce(own) do |sums, pid|
        sums.zip(files.map { |file| read(file, pid, nil) }).map { |sum, more| sum.zip(more).map(&:sum) }
      rescue NoProcessError
        sums # it ended meanwhile
      rescue ForbiddenError
        # For a moment the kernel refuses one that is ending, too.
        ending?(pid) ? sums : raise
      end
    end

    # Bit of the kernel's flags of a task that is on its way out (PF_EXITING).
    EXITING = 4
    private_constant :EXITING

    def ending?(pid)
      File.read("/proc/#{pid}/stat")[/\) \S(?: -?\d+){5} (\d+)/, 1].to_i & EXITING != 0
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

    # To tell root to become root is no help.
    def allowed
      yield
    rescue ForbiddenError => e
      raise unless Process.euid.zero?

      raise ForbiddenError, "root may not read #{e.message[/\A\S+/]}: the capability CAP_SYS_PTRACE is missing (in a " \
                            "container, add --cap-add=SYS_PTRACE), or a security module forbids it"
    end
  end
end
