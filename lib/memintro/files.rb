# frozen_string_literal: true

module Memintro
  # What several writers of files do.
  #
  # @api private
  module Files
    # Takes a file away that may be gone already; where it may not be taken away, it stays.
    #
    # @param path [String]
    # @return [nil]
    def self.remove(path)
      File.unlink(path)
      nil
    rescue SystemCallError
      nil
    end

    # Writes beside and renames: a file that was there is replaced when the new one is complete, and stays as it is when
    # anything goes wrong, a signal or a Timeout too. Never follows a link that somebody put there, nor writes into a
    # file that was there. Readable by its owner only.
    #
    # @param path [String]
    # @yieldparam file [File] open for writing
    # @return [nil]
    # @raise [SystemCallError, IOError]
    def self.replace(path, &write)
      # Two threads may write at the same time, so each has a name of its own.
      beside = "#{path}.#{Native.kernel_pid}.#{Thread.current.native_thread_id}.tmp"
      remove(beside)
      File.open(beside, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW, 0o600, &write)
      File.rename(beside, path)
      beside = nil
    ensure
      remove(beside) if beside
    end
  end
end
