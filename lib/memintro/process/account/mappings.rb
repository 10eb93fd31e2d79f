# frozen_string_literal: true

require_relative "../../support/names"
require_relative "../../error"
require_relative "row"

module Memintro
  class Account
    # An account of a process from outside: what the kernel says of its mappings.
    # @api private
    module Mappings
      HEAD = /\A\h+-\h+ ....\s+\h+ \S+ (\d+)\s*(.*)/n.freeze
      FIGURE = /\A(?:Rss|(Shared_)(?:Clean|Dirty)):\s+(\d+) kB/n.freeze
      # Most rows of the list of files.
      MOST = 20
      NOTE = "from the kernel's list of mappings alone: malloc, Ruby's heap and stacks of threads are all in " \
             "`anonymous`. Only a process that listens (MEMINTRO_LISTEN=1) can tell them apart"
      private_constant :HEAD, :FIGURE, :MOST, :NOTE

      # @param pid [Integer]
      # @return [Account]
      # @raise [NoProcessError, ForbiddenError, ProcError]
      def self.of(pid)
        sums, shared = sums(pid)
        # The kernel lists nothing of a process that has ended and not been waited for, and of its own threads.
        raise NoProcessError, "process #{pid} has no memory: it has ended, or is the kernel's own" if sums.empty?

        files = sums.select { |name, _| name.start_with?("/") }
        bytes, of_shared = [sums, shared].map { |found| by_row(found) }
        rows = NAMES.map do |name|
          Row.new(name, bytes.fetch(name, 0), :measured, details(name, files, sums),
                  shared_bytes: of_shared.fetch(name, 0))
        end
        rss = sums.values.sum
        verdict = "#{Units.share(bytes[:anonymous], rss)} of #{Units.bytes(rss)} is anonymous memory, and " \
                  "#{Units.share(bytes[:mapped_files], rss)} is files. More is not known of a process that does " \
                  "not listen."
        Account.new(rss: rss, rows: rows, notes: [NOTE], allocator: :unknown, pause_ms: 0.0, verdict: [verdict])
      end

      def self.sums(pid)
        name = ""
        File.foreach("/proc/#{pid}/smaps", mode: "rb").each_with_object([Hash.new(0), Hash.new(0)]) do |line, sums|
          if (head = HEAD.match(line))
            name = head[1] == "0" && !head[2].start_with?("[") ? "" : head[2]
          elsif (figure = FIGURE.match(line))
            sums[figure[1] ? 1 : 0][name] += Integer(figure[2], 10) * 1024
          end
        end
      rescue Errno::ENOENT, Errno::ESRCH
        raise NoProcessError, "there is no process #{pid}" if File.directory?("/proc/self")

        raise ProcError
      rescue Errno::EACCES, Errno::EPERM
        raise ForbiddenError, "/proc/#{pid}/smaps belongs to another user; ask as that user, or as root"
      end
      private_class_method :sums

      def self.by_row(sums)
        files = sums.sum { |name, bytes| name.start_with?("/") ? bytes : 0 }
        stack = sums.fetch("[stack]", 0)
        { thread_stacks: stack, mapped_files: files, anonymous: sums.values.sum - files - stack }
      end
      private_class_method :by_row

      def self.details(name, files, sums)
        case name
        when :mapped_files
          { files: files.max_by(MOST, &:last).map { |path, bytes| { name: Names.utf8(path), bytes: bytes } } }
        when :anonymous then { brk_bytes: sums.fetch("[heap]", 0) }
        else {}
        end
      end
      private_class_method :details
    end
  end
end
