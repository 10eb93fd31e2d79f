# frozen_string_literal: true

# Everything memintro raises by itself. Each message says what was wrong and what to do next; wrong arguments are
# Ruby's own ArgumentError and TypeError.
module Memintro
  # Parent of all of memintro's errors.
  class Error < StandardError
    # What is said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = nil

    # @param message [String, nil] what was wrong and what to do; nil takes the kind's own words
    def initialize(message = nil)
      super(message || self.class::DEFAULT_MESSAGE || self.class.name)
    end
  end

  # The hook does not work on this platform. What needs only Ruby's own interfaces keeps working, and never raises this.
  class UnsupportedError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "memintro's hook needs Linux with glibc on x86-64 or aarch64, and this is #{RUBY_PLATFORM}; " \
                      "`memintro doctor` says what works here".freeze
  end

  # The process is privileged (setuid and the like), or the hook was loaded under a `MEMINTRO_DISABLE` that has gone
  # since. While it is set nothing is raised: see {Memintro.disabled?}.
  class DisabledError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "the hook is off in this process, because the process is privileged (setuid, file " \
                      "capabilities) or was started with MEMINTRO_DISABLE=1; start it again without that"
  end

  # The kernel gave no memory for the table of live blocks.
  class ExhaustedError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "the kernel gave no memory for the table of live blocks; raise the process's limit " \
                      "(ulimit -v, the container's), or set max_tracker_bytes lower"
  end

  # The allocator's functions could not be found, as in a statically linked program.
  class AllocatorError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "no module of this process defines malloc, calloc, realloc and free where memintro can find " \
                      "them (a statically linked Ruby?); `memintro doctor` lists what is loaded"
  end

  # The hook is in place, yet a test allocation went past it.
  class NotSeenError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "memintro did not see a test allocation, because another library comes first in LD_PRELOAD; " \
                      "put memintro first, for example with `memintro run -- CMD`"
  end

  # Another thread is starting or stopping at this moment.
  class BusyError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "another thread is starting or stopping memintro; try again when it has finished"
  end

  # memintro does not know this Ruby: a function for reading its heap is missing.
  class UnknownRubyError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "memintro cannot read the heap of Ruby #{RUBY_VERSION}; `memintro doctor` shows which " \
                      "functions are missing".freeze
  end

  # Something that only the main Ractor can do was asked in another, or Ruby's heap was to be walked while more than one
  # is alive.
  class RactorError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "memintro can read the heap only while there is one Ractor; wait until the others have ended"
  end

  # The control socket could not be made: see {Memintro.listen}.
  class ListenError < Error; end

  # A process was asked through its control socket, and could not be reached or refused.
  class ControlError < Error; end

  # A raw dump is bad, foreign or cut short.
  class DumpError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "not a memintro dump of this version, or it was cut short"
  end

  # There is no process of the id that was given.
  class NoProcessError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "there is no such process; it may have ended"
  end

  # The kernel does not let this user see the memory of that process.
  class ForbiddenError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "the process is another user's; run as its user or as root"
  end

  # /proc is not there, or it is not Linux's.
  class ProcError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "memintro reads the memory of processes from /proc, which does not exist here"
  end

  # A saved snapshot cannot be read or written: cut short, something else, of a newer memintro, no permission.
  class SnapshotError < Error
    # Said when the raiser has nothing more precise to say.
    DEFAULT_MESSAGE = "not a snapshot that this memintro can read"
  end

  # {Memintro.[]} was given the end of more than one call site's name.
  class AmbiguousNameError < Error
    # Most names that the message lists.
    SHOWN = 10

    # @return [Array<String>] names of all call sites that match
    attr_reader :matches

    # @param name [String] what was looked for
    # @param matches [Array<String>] the names that end so
    def initialize(name, matches)
      @matches = matches.freeze
      rest = matches.size - SHOWN
      list = matches.first(SHOWN).map { |match| "\n  #{match}" }.join
      list << "\n  and #{rest} more" if rest.positive?
      super("#{name.inspect} is the end of #{matches.size} call sites; give more of the path:#{list}")
    end
  end
end
