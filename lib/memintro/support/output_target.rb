# frozen_string_literal: true

require_relative "defaults"
require_relative "files"
require_relative "output_owner"

module Memintro
  # The output of a process's report: a stream, a device, a named pipe, or a file of this process.
  #
  # A file is written under another name and renamed, so that a reader never sees half of it. Only its owner may read
  # it, because paths and sizes may be confidential.
  #
  # @api private
  class OutputTarget
    # Seconds to wait for a reader to open a named pipe, and to read from it.
    PATIENCE = 2
    private_constant :PATIENCE

    # @param file [String] as given, for a command or a process that has yet to write to it
    # @return [String, nil] why that cannot work
    def self.trouble(file)
      return if Defaults::STREAMS.key?(file)

      path = Files.absolute(file)
      folder = File.dirname(path)
      return "there is no folder #{folder}" unless File.directory?(folder)
      return "this is a folder; give a file in it" if File.directory?(path)
      return ("it cannot be written to" unless File.writable?(path)) unless replaceable?(path)

      "folder #{folder} cannot be written to" unless File.writable?(folder)
    end

    # Renaming a file over /dev/null, a named pipe or the like would destroy it.
    # @return [Boolean]
    def self.replaceable?(path)
      return false if path.start_with?("/dev/", "/proc/") && !path.start_with?("/dev/shm/")

      found = File.lstat(path)
      found.file? || found.symlink?
    rescue Errno::ENOENT
      true
    end

    # Writes to a named pipe. The program must end even if no process reads: each step takes {PATIENCE} seconds at most.
    #
    # @param path [String]
    # @param text [String]
    # @return [nil]
    # @raise [SystemCallError, Error]
    def self.feed(path, text)
      pipe = open_pipe(path)
      while pipe && !text.empty? && IO.select(nil, [pipe], nil, PATIENCE)
        taken = pipe.write_nonblock(text, exception: false)
        text = text.byteslice(taken..) if taken.is_a?(Integer)
      end
      raise Memintro::Error, "no process reads from the named pipe #{path}" unless text.empty?
    ensure
      pipe&.close
    end

    # The rendered output as one text, without a class of its own, because few reports need it.
    #
    # @yieldparam io [#write]
    # @return [String]
    def self.text
      text = +""
      text.define_singleton_method(:write) do |part|
        self << part
        part.bytesize
      end
      yield text
      text
    end

    # @return [File, nil] nil if no process reads
    def self.open_pipe(path)
      due = now + PATIENCE
      begin
        File.open(path, File::WRONLY | File::NONBLOCK)
      rescue Errno::ENXIO
        return if now > due

        sleep(0.02)
        retry
      end
    end
    private_class_method :open_pipe

    def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    private_class_method :now

    # @param pattern [String, nil] as the setting has it. Read once: the program may change its folder.
    def initialize(pattern)
      @pid = Native.kernel_pid
      @stream = Defaults::STREAMS[pattern]
      return if @stream

      # As bytes, because a name need not be text.
      @pattern = Files.absolute(pattern).b
      shared = @pattern.include?("%p") || self.class.replaceable?(@pattern)
      @owner = OutputOwner.new(@pattern, :first_free) if shared
    end

    # @return [String, nil] for %p and all: absolute; nil for a stream
    attr_reader :pattern

    # @return [String, nil] this process's file; nil for a stream
    # @raise [SystemCallError] if nothing can be written there
    def file
      # A thread of memintro may run before the forked child is prepared, and a child that C code forks is never
      # prepared.
      forget unless @pid == Native.kernel_pid
      @file ||= @pattern && choose
    end

    # @return [Boolean] whether a raw dump may take its place
    def replaceable?
      file ? self.class.replaceable?(file) : false
    end

    # @param heir [Boolean] whether a forked child goes on for its parent
    def heir=(heir)
      @owner.heir = heir if @owner
    end

    # In a forked child: files are chosen anew.
    # @return [nil]
    def forget
      @pid = Native.kernel_pid
      @file = nil
    end

    # See {OutputOwner#renew}
    # @return [nil]
    def renew
      @owner&.renew
    end

    # See {OutputOwner#release}
    # @return [nil]
    def release
      @owner&.release
    end

    # @yieldparam io [#write]
    # @return [nil]
    # @raise [SystemCallError, Error]
    def write(&render)
      return Files.bounded(@stream, &render) if @stream
      return replace(&render) if replaceable?
      return self.class.feed(file, self.class.text(&render)) if File.pipe?(file)

      File.open(file, "a") { |io| Files.bounded(io, &render) }
    end

    private

    def replace(&render)
      Files.replace(file, &render)
      release
    end

    def choose
      @owner ? @owner.file : @pattern
    end
  end
end
