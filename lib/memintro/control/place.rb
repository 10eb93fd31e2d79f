# frozen_string_literal: true

require_relative "../error"

module Memintro
  module Control
    # Where sockets are: in a folder that its user alone may enter. Used by the server, to make it, and by the command,
    # to look for it.
    module Place
      # Bytes that a socket's path may have: `sun_path` less its final NUL.
      LONGEST_PATH = 107
      # Overrides all others.
      VARIABLE = "MEMINTRO_SOCKET_FOLDER"
      # Name of a socket.
      SOCKET = /\A(\d+)\.sock\z/

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
        raise ListenError, "there is no folder for the control socket: #{refused.join('; ')}. Mend one of them, or " \
                           "set #{VARIABLE} to a folder of this user's own, mode 0700"
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

      # @return [Array<String>] folders to look into: this user's, and for root everybody's
      def self.search(env = ENV, uid = Process.euid)
        folders = candidates(env, uid)
        if env[VARIABLE].to_s.empty?
          folders |= candidates({}, uid)
          folders |= Dir["/run/user/*/memintro"] | Dir["/tmp/memintro-*"] if uid.zero?
        end
        folders.select { |folder| safe?(folder, uid) }
      end

      # @param pid [Integer]
      # @return [Array<String>] folders that another process may have chosen by its own environment
      def self.of_process(pid)
        env = File.binread("/proc/#{pid}/environ").split("\0").to_h { |line| [line[/\A[^=]*/], line[/=(.*)/m, 1]] }
        uid = File.stat("/proc/#{pid}").uid
        candidates(env, uid).select { |folder| safe?(folder, Process.euid) }
      rescue SystemCallError
        []
      end

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

      # @return [String, nil]
      def self.insecurity(folder, uid)
        found = File.lstat(folder)
        if found.symlink? then "#{folder} is a symbolic link"
        elsif !found.directory? then "#{folder} is no folder"
        elsif found.uid != uid then "#{folder} belongs to user #{found.uid}"
        elsif (found.mode & 0o077).positive? then "#{folder} is open to others (chmod 700 #{folder})"
        end
      end

      # A folder that somebody else may write to could hold sockets that answer whatever they like.
      def self.safe?(folder, uid)
        problem = insecurity(folder, uid)
        problem.nil? || (uid.zero? && insecurity(folder, File.lstat(folder).uid).nil?)
      rescue SystemCallError
        false
      end
      private_class_method :safe?
    end
  end
end
