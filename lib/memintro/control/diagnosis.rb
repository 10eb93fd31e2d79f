# frozen_string_literal: true

require_relative "../support/names"
require_relative "liveness"

module Memintro
  module Control
    # Finds out, from /proc if there is one, why a process does not answer, and what to do about it.
    module Diagnosis
      # States of threads in /proc/PID/stat.
      STOPPED = %w[T t].freeze
      private_constant :STOPPED

      # @param pid [Integer]
      # @param seconds [Numeric] how long nothing came
      # @return [String] why a process whose socket is there does not answer
      def self.silent(pid, seconds)
        states = thread_states(pid)
        return absent(pid) if Liveness.gone?(pid) || states.first == "Z"

        intro = "process #{pid} did not answer within #{seconds} s"
        return "#{intro}; the cause is unknown: #{blindness(pid)}" if states.empty?

        if (states & STOPPED).any?
          "#{intro}: it is stopped (SIGSTOP, Ctrl-Z or a debugger); continue it with: kill -CONT #{pid}"
        elsif states.include?("D")
          "#{intro}: it waits for a device or a network file system (state D); try again later"
        elsif states.include?("R")
          "#{intro}: C code in one of its threads computes while it holds Ruby's lock (GVL), or the machine is " \
            "overloaded; try again later, use a longer --timeout, or look with gdb -p #{pid}"
        else
          "#{intro}: C code in it waits for something while it holds Ruby's lock (GVL); try again later, or " \
            "look where it waits: gdb -p #{pid} -batch -ex 'thread apply all bt'"
        end
      end

      # @param pid [Integer]
      # @param listening_below [Integer] how many processes that descend from it listen
      # @return [String] why there is no socket
      def self.absent(pid, listening_below: 0)
        return "there is no process #{pid}" if Liveness.gone?(pid)

        uid = owner(pid)
        return forbidden(pid) unless uid ? [uid, 0].include?(Process.euid) : !Liveness.foreign?(pid)
        return zombie(pid) if thread_states(pid).first == "Z"

        blind = "; #{blindness(pid)}" if uid.nil?
        "process #{pid} (#{title(pid)[0, 60]}) does not listen#{workers(listening_below)}; #{how(pid)}#{blind}"
      end

      def self.zombie(pid)
        "process #{pid} is a zombie: it has ended, and its parent has not waited for it"
      end
      private_class_method :zombie

      # @param pid [Integer]
      # @return [String]
      def self.forbidden(pid)
        uid = owner(pid)
        return "process #{pid} is another user's; only that user and root may ask it; #{blindness(pid)}" if uid.nil?

        name = user(uid)
        who = uid.zero? ? "root" : "#{name} and root"
        "process #{pid} belongs to user #{name}; only #{who} may ask it: sudo -u #{name} memintro …"
      end

      # @param pid [Integer, nil] nil: any
      # @return [String] how a process comes to listen, and what can be done without
      def self.how(pid = nil)
        start = "with MEMINTRO_LISTEN=1 (it must require memintro), or call Memintro.listen in it"
        return "start one #{start}" if pid.nil?
        return rbtrace(pid) if rbtrace?(pid)

        "it cannot be changed from outside: restart it #{start}, for example in a console or a signal handler" \
          "#{". memintro rss #{pid} works without that" if Liveness.proc?}"
      end

      def self.rbtrace(pid)
        "it has rbtrace loaded, which can have it listen: rbtrace -p #{pid} -e 'require \"memintro\"; Memintro.listen'"
      end
      private_class_method :rbtrace

      # Its extension is mapped.
      def self.rbtrace?(pid)
        File.foreach("/proc/#{pid}/maps").any? { |line| line.b.match?(%r{/rbtrace\.so$}) }
      rescue SystemCallError
        false
      end
      private_class_method :rbtrace?

      # @param pid [Integer]
      # @return [String] why nothing is known of a process that is there
      def self.blindness(pid)
        return Liveness::BLIND unless Liveness.proc?

        "/proc shows nothing of process #{pid} to this user (hidepid)"
      end

      # @param pid [Integer]
      # @return [Boolean] whether it is gone, or has ended and its parent has not noticed
      def self.ended?(pid)
        Liveness.gone?(pid) || %w[Z X].include?(thread_states(pid).first)
      end

      # @param pid [Integer]
      # @return [String] the command line, as in ps
      def self.title(pid)
        words = File.binread("/proc/#{pid}/cmdline").split("\0")
        title = words.empty? ? File.binread("/proc/#{pid}/comm").chomp : words.join(" ")
        Names.printable(title)[0, 200]
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
        kib = File.binread("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1]
        kib && (kib.to_i * 1_024)
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

      # @param uid [Integer]
      # @return [String] its name, or number
      def self.user(uid)
        require "etc"
        Etc.getpwuid(uid).name
      rescue ArgumentError, TypeError
        uid.to_s
      end
    end
  end
end
