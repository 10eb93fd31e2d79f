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

    # A name in the folder of a path, for what gets its own name later: nobody can guess it, and so nobody can have put
    # anything there. It is short, for the path's own name may be as long as names can be.
    #
    # @param path [String]
    # @return [String]
    def self.beside(path)
      File.join(File.dirname(path), "memintro-#{Random.urandom(8).unpack1('H*')}.partial")
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
      beside = beside(path)
      File.open(beside, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW, 0o600, &write)
      File.rename(beside, path)
      beside = nil
    ensure
      remove(beside) if beside
    end
  end
end
