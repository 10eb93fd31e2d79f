# frozen_string_literal: true

module Memintro
  # {Memintro}'s method for snapshots.
  module Snapshots
    # Takes a snapshot of this process. The light one, without arguments, holds the memory of the process, `GC.stat`,
    # `GC.stat_heap` where Ruby has it, and while tracking the totals and the 100 call sites with most live bytes. It
    # costs about a millisecond, most of it for the control group, and 3 to 4 ms in a process of a GiB with 35,000 call
    # sites. What cannot be had, as without /proc, is named in {Snapshot#missing}.
    #
    # Each part adds to that. Those that walk the heap do so together, in steps of some milliseconds between which other
    # threads have their turn, and finish a garbage collection that is under way. Each page of the heap is seen at one
    # instant, and the whole is of the time that the walk takes. What is memintro's own is left out:
    #
    # - `:pss` – proportional and private memory: the kernel walks the page tables, 40 ms for each GiB;
    # - `:sites` – all call sites: a microsecond for each;
    # - `:types` – objects by type, `:classes` – by class, `:iseqs` – instruction sequences by file and line,
    #   `:internals` – what only the VM sees, `:occupancy` – how full the heap's pages are: each a walk of the heap,
    #   8 to 50 ms for a million objects ({Snapshot::Parts::COSTS});
    # - `:all` – all of these as far as they can be had.
    #
    # @param parts [Array<Symbol>] of {Snapshot::Parts::ALL}, or `:all`
    # @return [Snapshot]
    # @raise [ArgumentError, TypeError] on an unknown part
    # @raise [RactorError] in a Ractor other than the main one
    # @raise [Error] if a part that was named cannot be had
    # @example
    #   Memintro.snapshot.save("before.json")
    #   Memintro.snapshot(:iseqs, :classes).iseqs[:bytes]
    def snapshot(*parts)
      unless Ractor.current.equal?(Loading::MAIN_RACTOR)
        raise RactorError, "a snapshot can be taken in the main Ractor only; ask there, or send it a message to do so"
      end

      Late.whole(Snapshot)
      Snapshot.take(parts)
    end
  end
end
