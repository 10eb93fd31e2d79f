# frozen_string_literal: true

require "fileutils"
require_relative "../error"
require_relative "files"
require_relative "names"

module Memintro
  # Writes files that the user has named, and that may have been there before.
  #
  # @api private
  module UserFiles
    # The kernel follows as many links.
    MOST_LINKS = 40
    # What is no file.
    KINDS = { "directory" => "folder", "fifo" => "pipe", "characterSpecial" => "device", "blockSpecial" => "device",
              "socket" => "socket" }.freeze
    private_constant :MOST_LINKS, :KINDS

    # Writes a new file beside the path, and renames it when the disk has it whole: whatever goes wrong, what was there
    # before is still there. Follows links, as an editor does. Keeps the rights and the owner that the file had; a new
    # one has those that the umask gives. Folders are made.
    #
    # @param path [String]
    # @param text [String]
    # @return [nil]
    # @raise [Error] if it cannot be written
    def self.save(path, text)
      make_folder(File.dirname(path))
      path = target(path)
      before = stat(path)
      Files.replace(path) do |file|
        file.binmode
        file.write(text)
        file.fsync
        allow(file, before)
      end
    rescue SystemCallError, IOError => e
      raise Error, "#{Names.printable(path.b)} cannot be written: #{e.message.sub(/ @ .*/m, '')}"
    end

    def self.make_folder(folder)
      FileUtils.mkdir_p(folder)
    rescue Errno::EEXIST
      raise Errno::ENOTDIR
    end
    private_class_method :make_folder

    # The target of links, which may be a file that does not exist yet.
    def self.target(path)
      MOST_LINKS.times do
        return path unless File.symlink?(path)

        path = File.expand_path(File.readlink(path), File.realpath(File.dirname(path)))
      end
      raise Errno::ELOOP
    end
    private_class_method :target

    # @return [File::Stat, nil] of what is there
    # @raise [Error] if that is no file
    def self.stat(path)
      found = File.stat(path)
      return found if found.file?

      kind = KINDS.fetch(found.ftype, found.ftype)
      raise Error, "#{Names.printable(path.b)} cannot be written: it is no file, but a #{kind}"
    rescue Errno::ENOENT
      nil
    end
    private_class_method :stat

    def self.allow(file, before)
      file.chown(before.uid, before.gid) if before && [before.uid, before.gid] != [Process.euid, Process.egid]
    rescue Errno::EPERM
      nil # a file of another user, in a folder of ours, becomes ours
    ensure
      file.chmod(before ? before.mode & 0o777 : 0o666 & ~File.umask)
    end
    private_class_method :allow
  end
end
