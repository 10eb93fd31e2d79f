# frozen_string_literal: true

require_relative "../error"

module Memintro
  # Methods that all writers of files share.
  #
  # @api private
  module Files
    # Extends a file that is open for writing. The kernel ends a process that makes a file larger than its limit of
    # file sizes (ulimit -f). This raises instead, before anything is written.
    module Bounded
      # @return [Integer] bytes that the file may still grow by
      attr_writer :room

      # @param parts [Array<#to_s>]
      # @return [Integer] bytes
      # @raise [Errno::EFBIG]
      def write(*parts)
        parts = parts.map(&:to_s)
        @room -= parts.sum(&:bytesize)
        raise Errno::EFBIG if @room.negative?

        super(*parts)
      end
    end

    # Passes on a file or a stream that can be written to without that the limit of file sizes ends the process.
    #
    # @param io [IO] stays open
    # @yieldparam io [IO]
    # @return [Object] the block's value
    def self.bounded(io)
      limit, = Process.getrlimit(:FSIZE)
      return yield(io) if limit == Process::RLIM_INFINITY || !io.is_a?(IO) || !io.stat.file?

      # Another process may write at the same file's end.
      own = io.flush.dup
      own.sync = true
      own.extend(Bounded).room = limit - [io.stat.size, io.pos].max
      yield own
    ensure
      own&.close
    end

    # Removes a file, if it exists and may be removed.
    #
    # @param path [String]
    # @return [nil]
    def self.remove(path)
      File.unlink(path)
      nil
    rescue SystemCallError
      nil
    end

    # Returns a name in the folder of a path, for a file that is renamed later. It cannot be guessed, so that no other
    # user can have put a file there. It is short, because the path's own name may have the greatest length.
    #
    # @param path [String]
    # @return [String]
    def self.beside(path)
      File.join(File.dirname(path), "memintro-#{Random.urandom(8).unpack1('H*')}.partial")
    end

    # @return [String, nil] the current folder; nil if it has been removed
    def self.current_folder
      Dir.pwd
    rescue SystemCallError
      nil
    end

    # @param path [String] need not be text
    # @return [String]
    # @raise [Error] if it is relative, and there is no current folder that it is relative to
    def self.absolute(path)
      folder = path.b.start_with?("/") ? "/" : Dir.pwd.b
      File.expand_path(path.b, folder).force_encoding(Encoding.find("filesystem"))
    rescue SystemCallError
      raise Error, "the current folder has been removed: change to another one, or give #{path.inspect} with its " \
                   "whole path"
    end

    # Writes a new file beside the path and renames it: an existing file is replaced only when the new one is complete,
    # and stays as it is if anything goes wrong, including a signal or a Timeout. Never follows a link that another user
    # put there, and never writes into an existing file. Only its owner may read it.
    #
    # @param path [String]
    # @yieldparam file [File] open for writing
    # @return [nil]
    # @raise [SystemCallError, IOError]
    def self.replace(path, &write)
      beside = beside(path)
      flags = File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW
      File.open(beside, flags, 0o600) { |file| bounded(file, &write) }
      File.rename(beside, path)
      beside = nil
    ensure
      remove(beside) if beside
    end
  end
end
