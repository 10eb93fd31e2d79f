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
  end
end
