# frozen_string_literal: true

module Memintro
  # Paths of the built parts of memintro. Loads nothing else, because the command uses it before memintro is loaded.
  #
  # A checkout and most installations have the compiled parts beside the Ruby files. RubyGems can be told to keep
  # compiled files in a folder of extensions instead. A precompiled gem has one extension for each Ruby, in folders
  # named 3.1, 3.3 and so on, and the other parts beside the Ruby files.
  module Paths
    # File name of the extension.
    EXTENSION = "memintro.so"
    # File name of the hook.
    HOOK = "libmemintro_hook.so"
    # File name of the program for plots and the live view.
    TOOL = "memintro-tool"
    # Folder to put on the load path for `require "memintro"`.
    LIB = File.expand_path("../..", __dir__).freeze
    # Folder of the Ruby code and of the built parts.
    CODE = File.join(LIB, "memintro").freeze
    # File that `memintro run` requires in each Ruby process.
    AUTORUN = File.join(CODE, "autorun.rb").freeze
    # File that the inspecting commands require in each Ruby process.
    LAUNCHED = File.join(CODE, "integrations/launched_autorun.rb").freeze
    # Folder whose `mwrap.rb` is loaded by `require "mwrap"`.
    COMPAT = File.join(CODE, "compat/load_path").freeze

    # First bytes of the extension, which have the note of ext/memintro/src/built_for.rs.
    NOTE_BYTES = 4096
    # The contents of the note.
    NOTE = /memintro\0+Ruby ((\d+\.\d+)\S*) ABI /n.freeze
    private_constant :NOTE_BYTES, :NOTE

    # @return [String] absolute path of the extension for this Ruby; where it has not been built, the path that it
    #   would have, or of one for another Ruby
    def self.extension
      for_this_ruby = File.join(CODE, RUBY_VERSION[/\A\d+\.\d+/], EXTENSION)
      return for_this_ruby if File.exist?(for_this_ruby)

      # Rubies that share a folder of gems replace each other's file beside the Ruby files.
      beside = File.join(CODE, EXTENSION)
      File.exist?(beside) && foreign(beside).nil? ? beside : apart(EXTENSION) || beside
    end

    # Reads the file, because loading it would crash another Ruby than the one that it was compiled for.
    #
    # @param file [String] an extension
    # @return [String, nil] the version of the other Ruby, such as "3.1.2"; nil if this one may load it
    def self.foreign(file)
      version, minor = compiled_for(file)
      version unless minor.nil? || (RUBY_ENGINE == "ruby" && minor == RUBY_VERSION[/\A\d+\.\d+/])
    end

    # Looks at a file that is about to be loaded or run. A part of one, such as a full disk leaves, would end this
    # process, because the loader maps what is not there; a pipe would keep it waiting.
    #
    # @param file [String] one of the built parts
    # @return [String, nil] why it cannot be loaded; nil as well if it is not there
    def self.damage(file)
      found = File.stat(file)
      return "#{file} is no file, but a #{found.ftype}" unless found.file?

      # The offset of the table of sections, the bytes of each entry, and their number: it is the end of an ELF file.
      begins, bytes, number = File.binread(file, 64)&.unpack("@40Q @58SS") if found.size >= 64
      return if begins.nil? || found.size >= (whole = begins + (bytes * number))

      "#{file} is incomplete: it has #{found.size} bytes of #{whole}"
    rescue SystemCallError
      nil
    end

    # @return [Array(String, String), nil] contents of the note: a version of Ruby, and its first two parts
    def self.compiled_for(file)
      File.binread(file, NOTE_BYTES)&.match(NOTE)&.captures if File.file?(file)
    rescue SystemCallError
      nil
    end
    private_class_method :compiled_for

    # @return [Array<String>] the versions of Ruby for which there is an extension, such as "3.1", as far as is known
    def self.rubies
      built = [File.join(CODE, EXTENSION), apart(EXTENSION)].compact.filter_map { |file| compiled_for(file)&.last }
      (precompiled | built).uniq
    end

    # Forgets this memintro, which this Ruby cannot load: the program may bring another one, that was compiled for it.
    # @return [nil]
    def self.forget
      $LOADED_FEATURES.reject! { |file| file == "#{CODE}.rb" || file.start_with?("#{CODE}/") }
      Object.__send__(:remove_const, :Memintro)
      nil
    end

    # @return [Array<String>] the versions of Ruby for which a precompiled gem has the extension, such as "3.1"; none
    #   where it was compiled on this machine
    def self.precompiled
      folders = Dir.glob("[0-9]*.[0-9]*/#{EXTENSION}", base: CODE).map { |file| File.dirname(file) }
      folders.sort_by { |version| version.split(".").map(&:to_i) }
    end

    # @param ours [String] a path or flag
    # @param former [String, nil] the value of a variable that lists such
    # @param separator [String] of the list
    # @return [String] the list with ours first, and once
    def self.before(ours, former, separator)
      [ours, *former.to_s.split(separator).reject { |part| part.empty? || part == ours }].join(separator)
    end

    # @return [String] absolute path of the hook, whether or not it has been built
    def self.hook
      find(HOOK)
    end

    # @return [String] absolute path of the program for plots and the live view, whether or not it has been built
    def self.tool
      find(TOOL)
    end

    # @return [String] the error for a missing program, with advice
    def self.no_tool
      "the tool is not built: there is no #{tool}. In a checkout run bin/setup; for an installed gem run " \
        "gem pristine memintro."
    end

    def self.find(file)
      beside = File.join(CODE, file)
      File.exist?(beside) ? beside : apart(file) || beside
    end
    private_class_method :find

    # <gems>/extensions/<platform>/<api>/memintro-<version>/memintro/<file>
    def self.apart(file)
      require "rbconfig"
      gem_folder = File.dirname(LIB)
      api = RbConfig::CONFIG["ruby_version"]
      pattern = File.join("extensions", "*", "{#{api},#{api}-static}", File.basename(gem_folder), "memintro", file)
      gems = File.expand_path("../..", gem_folder)
      found = Dir.glob(pattern, base: gems).first
      found && File.join(gems, found)
    end
    private_class_method :apart
  end
end
