# frozen_string_literal: true

require "digest"

module Memintro
  module CLI
    # Another name for a folder whose path `LD_PRELOAD` and `RUBYOPT` cannot express: a link in a folder of this user.
    # Its name depends only on the path, so that all starts use one link.
    module AliasFolder
      # @param path [String] a file
      # @return [String] the same file by another path
      # @raise [Failure] if no such link can be made safely
      def self.path_for(path)
        folder, file = File.split(path)
        link = File.join(own_folder, Digest::SHA256.hexdigest(folder)[0, 16])
        point(link, folder)
        File.join(link, file)
      rescue SystemCallError => e
        raise Failure, "#{path} has a character that LD_PRELOAD cannot express, and a link to it failed: #{e.message}"
      end

      # A folder that another user can write to would let that user run code here.
      def self.own_folder
        folder = File.join(temporary_folder, "memintro-#{Process.uid}")
        begin
          Dir.mkdir(folder, 0o700)
        rescue Errno::EEXIST
          found = File.lstat(folder)
          unless found.directory? && found.uid == Process.uid && (found.mode & 0o077).zero?
            raise Failure, "#{folder} exists and is not this user's alone; remove it, or set TMPDIR to another folder"
          end
        end
        folder
      end
      private_class_method :own_folder

      def self.temporary_folder
        folder = ENV["TMPDIR"].to_s
        folder.start_with?("/") && !folder.match?(/[\s:;$]/) ? folder : "/tmp"
      end
      private_class_method :temporary_folder

      def self.point(link, folder)
        return if File.symlink?(link) && File.readlink(link) == folder

        fresh = "#{link}.#{Process.pid}"
        File.symlink(folder, fresh)
        File.rename(fresh, link)
      end
      private_class_method :point
    end
  end
end
