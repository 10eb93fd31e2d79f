# frozen_string_literal: true

require_relative "../files"
require_relative "client"
require_relative "place"

module Memintro
  module Control
    # Who listens: finds sockets, asks each who it is, and takes away those that nobody is behind any more.
    class Directory
      # For a process to say who it is.
      PATIENCE_SECONDS = 2
      # A word that is a process id.
      NUMBER = /\A\d+\z/
      private_constant :NUMBER

      # A process that listens, or whose socket is there although it does not answer: `problem` says why not. `called`
      # is what it called its program in a later answer.
      Listener = Struct.new(:pid, :path, :info, :problem, :called, keyword_init: true) do
        # @return [String] the program, as it calls itself
        def program
          Report::Names.printable((info && info["program"]) || called || Diagnosis.title(pid))
        end

        # @return [Array<String>] every name that it can be asked by
        def names
          title = program
          file = File.basename(title.split.first.to_s)
          [info && info["name"], title, file, file.delete_suffix(".rb"), title[/\A[^\s:]+(?=:)/]].compact.uniq
        end

        # @return [Integer, nil]
        def parent
          (info && info["ppid"]) || Diagnosis.parent(pid)
        end

        # @return [String] for messages
        def to_s
          "#{pid} (#{program[0, 60]})"
        end
      end

      # @param patience [Numeric] seconds for each to say who it is
      def initialize(patience: PATIENCE_SECONDS)
        @patience = patience
        @folders = Place.search
      end

      # @return [Array<Listener>] by process id
      def all
        @all ||= paths.map { |pid, path| Thread.new { meet(pid, path) } }.filter_map(&:value).sort_by(&:pid)
      end

      # @param word [String] a process id or a name
      # @return [Listener]
      # @raise [ControlError] if there is none, or several have that name
      def find(word)
        return by_pid(Integer(word, 10)) if word.match?(NUMBER)

        found = called(word)
        return found.first if found.size == 1

        raise ControlError, "#{found.size} processes are called #{word.inspect}; give the number of one, or " \
                            "--workers where all are meant:#{found.map { |listener| "\n  #{listener}" }.join}"
      end

      # A process and all that descend from it. It need not listen itself: where each worker loads its program, the
      # master has never heard of memintro. Of a name, all who have it are meant.
      #
      # @param word [String] a process id or a name
      # @return [Array<Listener>] masters before their workers, at least one
      # @raise [ControlError] if nobody listens who is meant
      def families(word)
        return family(Integer(word, 10)) if word.match?(NUMBER)

        found = called(word)
        masters = found.reject { |listener| found.any? { |other| below?(listener.pid, other.pid) } }
        masters.flat_map { |master| below(master.pid) }
      end

      private

      def paths
        @folders.flat_map do |folder|
          Dir.children(folder).filter_map do |name|
            pid = name[Place::SOCKET, 1]
            [pid.to_i, File.join(folder, name)] if pid
          end
        rescue SystemCallError
          []
        end
      end

      # A socket that refuses has no listener: a name is given to sockets only when they listen.
      def meet(pid, path)
        client = Client.new(pid, path, patience: @patience)
        Listener.new(pid: pid, path: path, info: client.ask_json("info"))
      rescue ControlError => e
        return Files.remove(path) if client.dead?

        Listener.new(pid: pid, path: path, problem: e.message)
      end

      # No question beforehand: whoever is asked by number is asked at once.
      def by_pid(pid)
        look_into(Place.of_process(pid))
        path = @folders.map { |folder| File.join(folder, "#{pid}.sock") }.find { |file| File.socket?(file) }
        raise ControlError, Diagnosis.absent(pid, listening_below: paths.count { |id, _| below?(id, pid) }) unless path

        Listener.new(pid: pid, path: path)
      end

      def family(pid)
        look_into(Place.of_process(pid))
        below(pid).tap { |found| raise ControlError, Diagnosis.absent(pid) if found.empty? }
      end

      def below(pid)
        all.select { |listener| listener.pid == pid } + all.select { |listener| below?(listener.pid, pid) }
      end

      # The socket of a process may be where only its own environment says, and those of its children beside it.
      def look_into(folders)
        @all = nil unless (folders - @folders).empty?
        @folders |= folders
      end

      def called(name)
        found = all.select { |listener| listener.names.include?(name) }
        raise ControlError, nobody(name) if found.empty?

        found
      end

      def nobody(word)
        return "no process listens; #{Diagnosis.how('PID')}" if all.empty?

        "no process that listens is called #{word.inspect}; there #{all.size == 1 ? 'is' : 'are'} " \
          "#{all.map(&:to_s).join(', ')}"
      end

      # Parents that do not listen may be in between. In a container the first process may be a server's master.
      def below?(pid, ancestor)
        while (pid = Diagnosis.parent(pid))&.positive?
          return true if pid == ancestor
        end
        false
      end
    end
  end
end
