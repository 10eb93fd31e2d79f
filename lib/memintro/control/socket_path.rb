# frozen_string_literal: true

require_relative "../error"

module Memintro
  module Control
    # The paths of sockets: in a folder that only its user may enter. The server uses it to create the socket, the
    # command to find it.
    module SocketPath
      # Bytes that a socket's path may have: `sun_path` less its final NUL.
      LONGEST_PATH = 107
      # Overrides all other folders.
      VARIABLE = "MEMINTRO_SOCKET_FOLDER"
      # Name of a socket.
      SOCKET = /\A(\d{1,9})\.sock\z/
      # Folders of all users.
      EVERYBODYS = ["/run/user/*/memintro", "/tmp/memintro-*"].freeze
      private_constant :EVERYBODYS

      # A folder of sockets, and its owner.
      Folder = Struct.new(:path, :uid) do
        # @return [Array<Integer, String>] process ids and the paths of their sockets
        def sockets
          Dir.children(path).filter_map do |name|
            pid = name[SOCKET, 1]
            [pid.to_i, File.join(path, name)] if pid
          end
        rescue SystemCallError
          []
        end
      end

      # @param pid [Integer]
      # @return [String] the socket's path, in a folder that exists and is safe
      # @raise [ListenError] if there is none
      def self.prepare(pid)
        refused = candidates.map do |folder|
          path = File.join(folder, "#{pid}.sock")
          problem = problem_with(folder, path)
          return path unless problem

          problem
        end
        raise ListenError, "no folder is safe for the control socket: #{refused.join('; ')}. Fix one of them, or set " \
                           "#{VARIABLE} to a folder that belongs to this user, with mode 0700"
      end

      # @return [Array<String>] folders to use, the best first
      def self.candidates(env = ENV, uid = Process.euid)
        chosen = env[VARIABLE].to_s
        return [chosen] unless chosen.empty?

        runtime = env["XDG_RUNTIME_DIR"].to_s
        folders = ["/run/user/#{uid}/memintro", "/tmp/memintro-#{uid}"]
        folders.unshift(File.join(runtime, "memintro")) if runtime.start_with?("/")
        folders.uniq
      end

      # @param users [Array<Integer>, :all, nil] whose, for root; nil: this user's own
      # @return [Array<Folder>] folders to look into
      def self.search(users = nil, env = ENV, uid = Process.euid)
        users ||= [uid]
        chosen = env[VARIABLE].to_s
        paths = [chosen] unless chosen.empty?
        paths ||= candidates(env, uid) | usual(users)
        folders(paths, users == :all ? nil : users)
      end

      def self.usual(users)
        users == :all ? Dir[*EVERYBODYS] : users.flat_map { |uid| candidates({}, uid) }
      end
      private_class_method :usual

      # @param pid [Integer]
      # @param users [Array<Integer>, :all] whose folders may be looked into
      # @return [Array<Folder>] those that another process may have chosen by its own environment
      def self.of_process(pid, users = [Process.euid])
        uid = File.stat("/proc/#{pid}").uid
        return [] unless users == :all || users.include?(uid)

        env = File.binread("/proc/#{pid}/environ").split("\0").to_h { |line| [line[/\A[^=]*/], line[/=(.*)/m, 1]] }
        folders(candidates(env, uid), [uid])
      rescue SystemCallError, ArgumentError
        []
      end

      # Removes the file of a socket, through the descriptor of its folder, so that it never uses another folder that
      # another user may have put in its place.
      #
      # @param folder [Folder]
      # @param name [String]
      # @param inode [Integer, nil] of the file that is meant; nil: any
      # @return [Boolean] whether it has gone
      def self.remove(folder, name, inode = nil)
        require_relative "../support/native"
        Native.remove_socket(folder.path, folder.uid, name, inode)
      rescue LoadError
        false # without the extension it stays
      end

      # @return [Array<Folder>] those of the paths that are safe, and of these users, if any are given
      def self.folders(paths, uids)
        paths.filter_map do |path|
          uid = File.lstat(path).uid
          Folder.new(path, uid) if (uids.nil? || uids.include?(uid)) && insecurity(path, uid).nil?
        rescue SystemCallError, ArgumentError
          nil
        end
      end
      private_class_method :folders

      # @return [String, nil] why the folder cannot be used, in words
      def self.problem_with(folder, path)
        if path.bytesize > LONGEST_PATH
          return "#{folder} is too long (#{path.bytesize} bytes with the socket's name; #{LONGEST_PATH} are possible)"
        end

        make(folder)
        insecurity(folder, Process.euid)
      rescue SystemCallError => e
        "#{folder}: #{e.message.sub(/ @ .*/m, '')}"
      end
      private_class_method :problem_with

      def self.make(folder)
        Dir.mkdir(folder, 0o700)
      rescue Errno::EEXIST
        nil
      end
      private_class_method :make

      # If another user may write to the folder, sockets in it cannot be trusted.
      #
      # @return [String, nil]
      def self.insecurity(folder, uid)
        found = File.lstat(folder)
        if found.symlink? then "#{folder} is a symbolic link"
        elsif !found.directory? then "#{folder} is no folder"
        elsif found.uid != uid then "#{folder} belongs to user #{found.uid}"
        elsif (found.mode & 0o077).positive? then "#{folder} is open to others (chmod 700 #{folder})"
        end
      end
    end
  end
end
