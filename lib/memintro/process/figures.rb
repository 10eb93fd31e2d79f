# frozen_string_literal: true

module Memintro
  # Memory of this process as the kernel counts it, in bytes: methods of {Memintro}. They answer from any thread, from
  # any Ractor, in finalizers, in trap handlers and in forked children.
  #
  # @example
  #   Memintro.rss        # => 31_469_568
  #   Memintro.peak_rss   # => 33_161_216
  module ProcessFigures
    # Memory that is in RAM now, shared pages included: `/proc/self/statm`, through a descriptor that stays open. Costs
    # about a microsecond, and no Ruby object but the Integer.
    #
    # The kernel keeps this count in pages and, from Linux 6.2 on, sums it up roughly: it may be a few hundred KiB off
    # on a machine of many processors. {pss} and {uss} are counted page by page.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def rss
      Native.rss
    end

    # The most that {rss} has been: `VmHWM` of `/proc/self/status`, as exact as that. Costs about 50 µs.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def peak_rss
      Native.peak_rss
    end

    # Proportional share: a page that n processes share counts for one n-th. `/proc/self/smaps_rollup`, counted exactly
    # by a walk of all pages: about half a millisecond for a small process, some milliseconds for each resident GiB.
    # Other threads run meanwhile.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def pss
      Native.pss
    end

    # What would come free if the process ended: pages that it shares with nobody. `Private_Clean`, `Private_Dirty` and
    # `Private_Hugetlb` of `/proc/self/smaps_rollup`, as exact as {pss} and at its cost.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def uss
      Native.uss
    end

    # What was swapped out: `VmSwap` of `/proc/self/status`, without shared memory; what a fork left to several
    # processes counts in each. As exact as {rss}, by a counter of the same kind. Costs about 50 µs.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def swap
      Native.swap
    end

    # The whole address space, most of which may never have been touched: `/proc/self/statm`, exact. Costs what {rss}
    # costs.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def vsize
      Native.vsize
    end

    # The memory limit of the container or service that this process runs in, and how near it is. Reads some files of
    # /sys/fs/cgroup, which costs 0.4 to 0.8 ms.
    #
    # @return [Cgroup, nil] nil if no memory control group holds the process, or none that can be seen
    # @raise [RactorError] in a Ractor on Ruby 3.3, until the main one has called it once
    def cgroup
      Loader.need(:Cgroup, :CgroupFiles)
      Native.untracked_enter
      CgroupFiles.new.read
    ensure
      Native.untracked_leave
    end
  end
end
