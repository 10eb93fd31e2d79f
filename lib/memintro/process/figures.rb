# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/arguments"

module Memintro
  # Methods of {Memintro} that return the memory of this process as the kernel counts it, in bytes. They work in any
  # thread, any Ractor, in finalizers, in trap handlers and in forked children.
  #
  # @example
  #   Memintro.rss        # => 31_469_568
  #   Memintro.peak_rss   # => 33_161_216
  module ProcessFigures
    # Returns the memory that is in RAM now, shared pages included, from `/proc/self/statm`, through a descriptor that
    # stays open. Costs about a microsecond, and makes no Ruby object except the Integer.
    #
    # The kernel counts in pages. From Linux 6.2 on, the sum is rough: on a machine with many processors it may be wrong
    # by a few hundred KiB. {pss} and {uss} are counted page by page.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def rss
      Native.rss
    end

    # Returns the peak of {rss}: `VmHWM` of `/proc/self/status`, with the same precision. Costs about 50 µs.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def peak_rss
      Native.peak_rss
    end

    # Returns the proportional share: a page that n processes share counts for one n-th. Read from
    # `/proc/self/smaps_rollup`, for which the kernel walks all pages and counts exactly: about half a millisecond for a
    # small process, some milliseconds for each resident GiB. Other threads run meanwhile.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def pss
      Native.pss
    end

    # Returns the memory that would be freed if the process ended: pages that no other process shares. `Private_Clean`,
    # `Private_Dirty` and `Private_Hugetlb` of `/proc/self/smaps_rollup`, with the precision and cost of {pss}.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def uss
      Native.uss
    end

    # Returns what was swapped out: `VmSwap` of `/proc/self/status`, without shared memory. Pages that a fork left to
    # several processes count in each. With the precision of {rss}. Costs about 50 µs.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def swap
      Native.swap
    end

    # Returns the size of the whole address space, from `/proc/self/statm`, exactly. Most of it may never have been
    # used. Costs as much as {rss}.
    #
    # @return [Integer]
    # @raise [ProcError] without /proc
    def vsize
      Native.vsize
    end

    # Returns the memory limit of the container or service in which this process runs, and how near it is. Reads some
    # files of /sys/fs/cgroup, which costs 0.4 to 0.8 ms.
    #
    # @return [Cgroup, nil] nil if no memory control group holds the process, or none that can be seen
    def cgroup
      Native.untracked_enter
      CgroupFiles.new.read
    ensure
      Native.untracked_leave
    end

    # Returns where the resident memory is: rows that add up to RSS exactly. A copy of the process counts, in which
    # nothing moves; this one stands still while Ruby lists the pages of its heap and the kernel copies its page tables
    # ({Account#pause_ms}; some 10 ms for each GiB), and waits for the copy without Ruby's lock. docs/account.md has
    # the rows and what they mean.
    #
    # @param ruby [Boolean] false: Ruby's heap is not looked at; its pages are in `anonymous`, and what its objects own
    #   in `malloc_native`
    # @param seconds [Integer] after which the copy is given up
    # @return [Account]
    # @raise [AccountError] if the process cannot be copied, or its container is so full that a copy could have the
    #   kernel end the program
    # @raise [RactorError] in a Ractor other than the main one, and while there are several
    # @example
    #   puts Memintro.account
    def account(ruby: true, seconds: 30)
      MainRactor.only
      Loader.need(:Account)
      Arguments.flag(:ruby, ruby)
      Arguments.count(:seconds, seconds, least: 1, most: 600)
      untracked do
        if ruby && Ractor.count > 1
          raise RactorError, "#{Ractor.count} Ractors are alive, and the heap can be read only while there is one; " \
                             "Memintro.account(ruby: false) leaves it out"
        end
        Account::Copying.take(ruby: ruby, pagemap: true, seconds: seconds, cgroup: CgroupFiles.new.read)
      end
    end

    # Has the allocator give free memory back to the kernel: glibc, or one of those in docs/allocators.md. Takes
    # milliseconds to seconds, without Ruby's lock; other threads wait for malloc meanwhile.
    #
    # @param compact [Boolean] run `GC.compact` before. On Ruby 3.1 this is a full collection that moves objects:
    #   extensions that keep addresses of objects without telling Ruby break
    # @return [Hash{Symbol => Integer}] `rss_before`, `rss` and `given_back_bytes`
    # @raise [UnsupportedError] if the allocator has no such function
    # @example
    #   Memintro.trim[:given_back_bytes]   # => 251_658_240
    def trim(compact: false)
      MainRactor.only
      Arguments.flag(:compact, compact)
      before = rss
      GC.compact if compact
      raise UnsupportedError, "the allocator has no function that gives memory back" unless Native.malloc_trim

      after = rss
      { rss_before: before, rss: after, given_back_bytes: before - after }
    end
  end
end
