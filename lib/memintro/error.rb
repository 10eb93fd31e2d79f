# frozen_string_literal: true

# All errors of memintro. Each message says what was wrong and what to do next. Wrong arguments raise Ruby's
# ArgumentError and TypeError.
module Memintro
  # Parent of all of memintro's errors.
  class Error < StandardError
    # The message if the caller gives none.
    DEFAULT_MESSAGE = nil

    # @param message [String, nil] what was wrong and what to do; nil takes the kind's own words
    def initialize(message = nil)
      super(message || self.class::DEFAULT_MESSAGE || self.class.name)
    end
  end

  # The hook does not work on this platform. Methods that use only Ruby's own interfaces still work, and never raise
  # this.
  class UnsupportedError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "memintro's hook needs Linux with glibc on x86-64 or aarch64, and this is #{RUBY_PLATFORM}; " \
                      "`memintro doctor` says what works here".freeze
  end

  # The process is privileged (setuid and the like), or the hook was loaded while `MEMINTRO_DISABLE` was set, which is
  # no longer set. While it is set, nothing is raised: see {Memintro.disabled?}.
  class DisabledError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "the hook is off in this process, because the process is privileged (setuid, file " \
                      "capabilities) or was started with MEMINTRO_DISABLE=1; start it again without that"
  end

  # The kernel gave no memory for the table of live blocks.
  class ExhaustedError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "the kernel gave no memory for the table of live blocks; raise the process's limit " \
                      "(ulimit -v, the container's), or set max_tracker_bytes lower"
  end

  # The allocator's functions could not be found, as in a statically linked program.
  class AllocatorError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "no module of this process defines malloc, calloc, realloc and free where memintro can find " \
                      "them (a statically linked Ruby?); `memintro doctor` lists what is loaded"
  end

  # The hook is in place, but a test allocation did not reach it.
  class NotSeenError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "memintro did not see a test allocation, because another library comes first in LD_PRELOAD; " \
                      "put memintro first, for example with `memintro run -- CMD`"
  end

  # Another thread is starting or stopping at this moment.
  class BusyError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "another thread is starting or stopping memintro; try again when it has finished"
  end

  # memintro does not know this Ruby: a function for reading its heap is missing.
  class UnknownRubyError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "memintro cannot read the heap of Ruby #{RUBY_VERSION}; `memintro doctor` shows which " \
                      "functions are missing".freeze
  end

  # A method that works only in the main Ractor was called in another one, or a walk of the heap was requested while
  # more than one Ractor is alive.
  class RactorError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "memintro can read the heap only while there is one Ractor; wait until the others have ended"
  end

  # The control socket could not be created: see {Memintro.listen}.
  class ListenError < Error; end

  # A process could not be reached through its control socket, or refused the request.
  class ControlError < Error; end

  # A raw dump is damaged, of another format, or cut short.
  class DumpError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "not a memintro dump of this version, or it was cut short"
  end

  # No process has this id.
  class NoProcessError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "there is no such process; it may have ended"
  end

  # The kernel does not let this user see the memory of that process.
  class ForbiddenError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "the process is another user's; run as its user or as root"
  end

  # /proc does not exist, or is not that of Linux.
  class ProcError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "memintro reads the memory of processes from /proc, which does not exist here"
  end

  # The process could not be copied for an account of its memory, or what the copy said cannot be read.
  class AccountError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "no account of the memory could be made; Memintro::ProcessMemory reads figures of the kernel"
  end

  # The process could not be searched for leaks, or what was found cannot be trusted.
  class LeaksError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "the process could not be searched for leaks"
  end

  # A dump of the heap could not be made, written or read.
  class HeapDumpError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "the heap could not be dumped"
  end

  # A saved snapshot cannot be read or written: it is cut short, not a snapshot, or of a newer memintro, or permission
  # is missing.
  class SnapshotError < Error
    # The message if the caller gives none.
    DEFAULT_MESSAGE = "not a snapshot that this memintro can read"
  end

  # The name given to {Memintro.[]} is the end of the names of several call sites.
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
