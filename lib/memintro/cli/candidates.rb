# frozen_string_literal: true

require_relative "../control/directory"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/table"
require_relative "../support/units"

module Memintro
  module CLI
    # Processes to suggest as the operand of a command: those that listen, and other Ruby processes of the user.
    class Candidates
      # Most processes that are listed, those that listen first.
      MOST = 20
      # Names of Ruby's own programs.
      RUBY = /\A(?:ruby|jruby|truffleruby)[\d.]*\z/
      # A file that shows that a program contains Ruby.
      LIBRARY = %r{/libruby[^/]*\.so}
      private_constant :MOST, :RUBY, :LIBRARY

      # @param text [String] the missing operand
      # @param users [Array<Integer>, :all, nil] owners of the processes; nil: this user
      # @return [UsageError] with a list of the processes
      def self.missing(text, users = nil)
        UsageError.new([text, *new(users).lines].join("\n"))
      end

      # @param users [Array<Integer>, :all, nil]
      def initialize(users = nil)
        @users = users || [Process.euid]
      end

      # @return [Array<String>]
      def lines
        listeners = Control::Directory.new(users: @users).all
        others = rubies(listeners.map(&:pid))
        rows = listeners.map { |one| row(one.pid, one.rss_bytes, one.problem ? "?" : "yes", one.name, one.program) }
        rows += others.map { |pid| silent(pid) }
        return ["", "No Ruby process was found."] if rows.empty?

        ["", *Table.new(%w[PID RSS LISTENS NAME], "PROGRAM", rows.first(MOST)).lines(Style.new(false)),
         *("#{Units.count(rows.size - MOST)} more" if rows.size > MOST), *(advice if others.any?)]
      end

      private

      def silent(pid)
        row(pid, Control::Diagnosis.rss_bytes(pid), "no", nil, Control::Diagnosis.title(pid))
      end

      def advice
        ["", "Of a process that does not listen, memintro rss alone can tell something; #{Control::Diagnosis.how}."]
      end

      def row(pid, rss, listens, name, program)
        [pid.to_s, rss ? Units.bytes(rss) : "-", listens, name || "-", Names.printable(program)[0, 100]]
      end

      # The greatest RSS first. A process that ends meanwhile is left out.
      def rubies(known)
        pids = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i) - known - [Process.pid]
        pids.select { |pid| ruby?(pid) }.sort_by { |pid| -(Control::Diagnosis.rss_bytes(pid) || 0) }
      rescue SystemCallError
        []
      end

      def ruby?(pid)
        return false unless @users == :all || @users.include?(Control::Diagnosis.owner(pid))
        return true if File.basename(File.readlink("/proc/#{pid}/exe")).match?(RUBY)

        File.binread("/proc/#{pid}/maps").match?(LIBRARY)
      rescue SystemCallError
        false
      end
    end
  end
end
