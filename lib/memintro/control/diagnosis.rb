# frozen_string_literal: true

require_relative "../report/names"

module Memintro
  module Control
    # Why a process cannot be asked, found out in /proc, and what to do about it.
    module Diagnosis
      # States of threads, as /proc/PID/stat has them.
      STOPPED = %w[T t].freeze
      private_constant :STOPPED

      # @param pid [Integer]
      # @param seconds [Numeric] how long nothing came
      # @return [String] why a process whose socket is there does not answer
      def self.silent(pid, seconds)
        states = thread_states(pid)
        return absent(pid) if states.empty? || states.first == "Z"

        intro = "process #{pid} did not answer within #{seconds} s"
        if (states & STOPPED).any?
          "#{intro}: it is stopped (SIGSTOP, Ctrl-Z or a debugger); continue it with: kill -CONT #{pid}"
        elsif states.include?("D")
          "#{intro}: it waits for a device or a network file system (state D); ask again later"
        elsif states.include?("R")
          "#{intro}: one of its threads computes and does not let others run, in C code that keeps Ruby's lock " \
            "(GVL), or the machine is overloaded; ask again later, give more time (--timeout), or look: gdb -p #{pid}"
        else
          "#{intro}: C code in it waits for something and keeps Ruby's lock (GVL) meanwhile; ask again later, or " \
            "look where it waits: gdb -p #{pid} -batch -ex 'thread apply all bt'"
        end
      end

      # @param pid [Integer]
      # @param listening_below [Integer] how many processes that descend from it listen
      # @return [String] why there is no socket
      def self.absent(pid, listening_below: 0)
        uid = owner(pid)
        return "there is no process #{pid}" if uid.nil?
        return forbidden(pid) unless [uid, 0].include?(Process.euid)
        return "process #{pid} has ended, and its parent has not noticed" if thread_states(pid).first == "Z"

        "process #{pid} (#{title(pid)[0, 60]}) does not listen#{workers(listening_below)}; #{how(pid)}"
      end

      # @param pid [Integer]
      # @return [String]
      def self.forbidden(pid)
        "process #{pid} belongs to user #{user(owner(pid))}, who alone may ask it (and root): sudo -u " \
          "#{user(owner(pid))} memintro …"
      end

      # @param pid [Integer, String]
      # @return [String] how to make a process listen
      def self.how(pid)
        "start it with MEMINTRO_LISTEN=1, or have it call Memintro.listen, for example: rbtrace -p #{pid} -e " \
          "'Memintro.listen'"
      end

      # @param pid [Integer]
      # @return [String] what ps would show
      def self.title(pid)
        words = File.binread("/proc/#{pid}/cmdline").split("\0")
        title = words.empty? ? File.binread("/proc/#{pid}/comm").chomp : words.join(" ")
        Report::Names.printable(title)[0, 200]
      rescue SystemCallError
        "?"
      end

      # @param pid [Integer]
      # @return [Integer, nil] nil: no such process
      def self.owner(pid)
        File.stat("/proc/#{pid}").uid
      rescue SystemCallError
        nil
      end

      # @param pid [Integer]
      # @return [Array<String>] of the process, then of its threads
      def self.thread_states(pid)
        [state("/proc/#{pid}/stat"), *Dir["/proc/#{pid}/task/*/stat"].map { |file| state(file) }].compact
      end

      # @param pid [Integer]
      # @return [Integer, nil] its parent
      def self.parent(pid)
        File.binread("/proc/#{pid}/stat")[/.*\) \S (\d+)/m, 1]&.to_i
      rescue SystemCallError
        nil
      end

      # @param pid [Integer]
      # @return [Integer, nil] resident bytes
      def self.rss_bytes(pid)
        File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1_024
      rescue SystemCallError
        nil
      end

      def self.workers(count)
        return if count.zero?

        ", but #{count == 1 ? 'a process below it does' : "#{count} processes below it do"}: with --workers they are " \
          "asked, and memintro ps lists them"
      end
      private_class_method :workers

      # The command's name may contain anything, also ") R ".
      def self.state(file)
        File.binread(file)[/.*\) (\S)/m, 1]
      rescue SystemCallError
        nil
      end
      private_class_method :state

      def self.user(uid)
        require "etc"
        Etc.getpwuid(uid).name
      rescue ArgumentError, TypeError
        uid.to_s
      end
      private_class_method :user
    end
  end
end
