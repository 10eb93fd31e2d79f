# frozen_string_literal: true

require_relative "client"
require_relative "socket_path"

module Memintro
  module Control
    # The processes that listen: finds sockets, asks each process for its name, and removes sockets whose process is
    # gone.
    class Directory
      # Seconds for a process to answer who it is.
      PATIENCE_SECONDS = 2
      # A word that is a process id.
      NUMBER = /\A\d+\z/
      # Processes that are asked at the same time.
      MOST_AT_ONCE = 64
      # Most generations between a process and its ancestor.
      MOST_GENERATIONS = 1_000
      private_constant :NUMBER, :MOST_AT_ONCE, :MOST_GENERATIONS

      # A process that listens, or that has a socket but does not answer: `problem` says why. `called` is the name of
      # its program in a later answer, `uid` the owner of the socket's folder.
      Listener = Struct.new(:pid, :path, :uid, :info, :problem, :called, keyword_init: true) do
        # @return [String] the program, as it calls itself
        def program
          Names.printable((info && info["program"]) || called || Diagnosis.title(pid))
        end

        # @return [String, nil] the name it was given
        def name
          info && info["name"] && Names.printable(info["name"])
        end

        # @return [Array<String>] every name that it can be asked by
        def names
          title = program
          file = File.basename(title.split.first.to_s)
          [name, title, file, file.delete_suffix(".rb"), title[/\A[^\s:]+(?=:)/]].compact.uniq
        end

        # @return [Integer, nil]
        def parent
          Diagnosis.parent(pid) || (info && info["ppid"])
        end

        # @return [Integer, nil] as the kernel says, or where it does not, the process
        def rss_bytes
          Diagnosis.rss_bytes(pid) || (info && info["rss_bytes"])
        end

        # @param patience [Numeric] seconds
        # @return [Client]
        def client(patience = Client::PATIENCE_SECONDS)
          Client.new(pid, path, patience: patience, uid: uid || Process.euid)
        end

        # @return [String] for messages
        def to_s
          "#{pid} (#{program[0, 60]})"
        end
      end

      # @param patience [Numeric] seconds for each to say who it is
      # @param users [Array<Integer>, :all, nil] whose folders to look into, for root; nil: this user's own
      def initialize(patience: PATIENCE_SECONDS, users: nil)
        @patience = patience
        @users = users || [Process.euid]
        @folders = SocketPath.search(@users)
      end

      # @return [Array<Listener>] by process id
      def all
        @all ||= sockets.each_slice(MOST_AT_ONCE).flat_map do |some|
          some.map { |pid, path, folder| Thread.new { meet(pid, path, folder) } }.filter_map(&:value)
        end.sort_by(&:pid)
      end

      # @param word [String] a process id or a name
      # @return [Listener]
      # @raise [ControlError] if there is none, or several have that name
      def find(word)
        return by_pid(Integer(word, 10)) if word.match?(NUMBER)

        found = called(word)
        return found.first if found.size == 1

        raise ControlError, "#{found.size} processes are called #{word.inspect}; give the PID of one, or " \
                            "--workers for all of them:#{found.map { |listener| "\n  #{listener}" }.join}"
      end

      # Finds a process and all its descendants that listen. The process itself need not listen: if each worker loads
      # the program, the master does not have memintro. With a name, returns all processes of that name.
      #
      # @param word [String] a process id or a name
      # @return [Array<Listener>] masters before their workers, at least one
      # @raise [ControlError] if no such process listens
      def families(word)
        return family(Integer(word, 10)) if word.match?(NUMBER)

        found = called(word)
        masters = found.reject { |listener| found.any? { |other| below?(listener.pid, other.pid) } }
        masters.flat_map { |master| below(master.pid) }
      end

      private

      # @return [Array<Integer, String, SocketPath::Folder>] process ids, paths of their sockets, and where these are
      def sockets
        @folders.flat_map { |folder| folder.sockets.map { |pid, path| [pid, path, folder] } }
      end

      # A socket that refuses the connection has no listener, because a socket gets its name only when it listens. Any
      # other error concerns only this listener.
      def meet(pid, path, folder)
        inode = File.lstat(path).ino
        listener = Listener.new(pid: pid, path: path, uid: folder.uid)
        client = listener.client(@patience)
        listener.info = client.ask_json("info")
        listener
      rescue ControlError => e
        return if client.dead? && (SocketPath.remove(folder, File.basename(path), inode) || !File.exist?(path))

        listener.problem = e.message
        listener
      rescue SystemCallError
        nil # it has gone meanwhile
      end

      # Sends no request first: a process that is given by its PID is asked at once.
      def by_pid(pid)
        check_user(pid)
        look_into(SocketPath.of_process(pid, @users))
        id, path, folder = sockets.find { |found, file, _| found == pid && File.socket?(file) }
        return Listener.new(pid: id, path: path, uid: folder.uid) if id

        raise ControlError, Diagnosis.absent(pid, listening_below: sockets.count { |one, *| below?(one, pid) })
      end

      def family(pid)
        check_user(pid)
        look_into(SocketPath.of_process(pid, @users))
        below(pid).tap { |found| raise ControlError, Diagnosis.absent(pid) if found.empty? }
      end

      # Root may read all folders, but does so only with --user.
      def check_user(pid)
        owner = Diagnosis.owner(pid)
        return if owner.nil? || !Process.euid.zero? || @users == :all || @users.include?(owner)

        name = Diagnosis.user(owner)
        raise ControlError, "process #{pid} belongs to user #{name}; as root, add --user #{name}"
      end

      def below(pid)
        all.select { |listener| listener.pid == pid } + all.select { |listener| below?(listener.pid, pid) }
      end

      # The socket of a process may be in a folder that only its own environment names, and those of its children beside
      # it.
      def look_into(folders)
        @all = nil unless (folders - @folders).empty?
        @folders |= folders
      end

      def called(name)
        found = all.select { |listener| listener.names.include?(name) }
        raise ControlError, unknown(name) if found.empty?

        found
      end

      def unknown(word)
        return "no process listens; #{Diagnosis.how}" if all.empty?

        "no process that listens is called #{word.inspect}; there #{all.size == 1 ? 'is' : 'are'} " \
          "#{all.map(&:to_s).join(', ')}"
      end

      # Parents that do not listen may be in between. In a container, process 1 may be the master of a server. If the
      # kernel hides parents, the processes report them; these may form a circle, so the number of steps is limited.
      def below?(pid, ancestor)
        MOST_GENERATIONS.times do
          pid = Diagnosis.parent(pid) || said_parent(pid)
          return false unless pid&.positive?
          return true if pid == ancestor
        end
        false
      end

      def said_parent(pid)
        listener = @all&.find { |one| one.pid == pid }
        listener&.info && listener.info["ppid"]
      end
    end
  end
end
