# frozen_string_literal: true

require_relative "client"
require_relative "place"

module Memintro
  module Control
    # Who listens: finds sockets, asks each who it is, and takes away those that nobody is behind any more.
    class Directory
      # For a process to say who it is.
      PATIENCE_SECONDS = 2

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
      end

      # @return [Array<Listener>] by process id
      def all
        @all ||= paths.map { |pid, path| Thread.new { meet(pid, path) } }.filter_map(&:value).sort_by(&:pid)
      end

      # @param word [String] a process id or a name
      # @return [Listener]
      # @param family [Boolean] whether a master is meant, with all its workers, where all have that name
      # @raise [ControlError] if there is none, or several have that name
      def find(word, family: false)
        return by_pid(Integer(word, 10)) if word.match?(/\A\d+\z/)

        found = all.select { |listener| listener.names.include?(word) }
        found = found.reject { |listener| found.any? { |other| below?(listener, other) } } if family
        return found.first if found.size == 1

        raise ControlError, found.empty? ? nobody(word) : several(word, found)
      end

      # @param master [Listener]
      # @return [Array<Listener>] itself and all listeners that descend from it
      def family(master)
        [master, *all.select { |listener| below?(listener, master) }]
      end

      private

      def paths
        Place.search.flat_map do |folder|
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
        return remove(path) if client.dead?

        Listener.new(pid: pid, path: path, problem: e.message)
      end

      def remove(path)
        File.unlink(path)
        nil
      rescue SystemCallError
        nil
      end

      # No question beforehand: whoever is asked by number is asked at once.
      def by_pid(pid)
        folders = Place.search | Place.of_process(pid)
        path = folders.map { |folder| File.join(folder, "#{pid}.sock") }.find { |file| File.socket?(file) }
        raise ControlError, Diagnosis.absent(pid) unless path

        Listener.new(pid: pid, path: path)
      end

      def nobody(word)
        return "no process listens; #{Diagnosis.how('PID')}" if all.empty?

        "no process that listens is called #{word.inspect}; there #{all.size == 1 ? 'is' : 'are'} " \
          "#{all.map(&:to_s).join(', ')}"
      end

      def several(word, found)
        "#{found.size} processes are called #{word.inspect}; give the number of one:" \
          "#{found.map { |listener| "\n  #{listener}" }.join}"
      end

      # Parents that do not listen may be in between.
      def below?(listener, ancestor)
        pid = listener.pid
        while (pid = Diagnosis.parent(pid)) && pid > 1
          return true if pid == ancestor.pid
        end
        false
      end
    end
  end
end
