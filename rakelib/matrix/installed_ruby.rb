# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "debian_root"
require_relative "ruby_home"

module Matrix
  # A Ruby that is installed on this machine, named by its prefix. It stands where a RubyEntry, its RubyHome and its
  # DebianRoot stand for a Ruby of rubies.yml: commands run on this machine, with a private GEM_HOME.
  class InstalledRuby
    # What specs need beside Ruby, and what a Ruby that was built from source may lack. Bundled gems are not installed
    # with it then.
    LIBRARIES = %w[bigdecimal fiddle irb minitest ostruct].freeze
    # Of this process's variables, those that a build or a program needs.
    INHERITED = %w[HOME LANG CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN LIBCLANG_PATH http_proxy https_proxy no_proxy
                   TMPDIR TEST_RUN_MARK].freeze

    # @param name [String] what the caller typed
    # @return [Boolean] whether it is a prefix, not a name in rubies.yml
    def self.prefix?(name) = name.include?("/")

    attr_reader :prefix, :folder

    # @param prefix [String] the folder that has bin/ruby, or that program itself
    # @param folder [String] of the matrix
    # @raise [Failed] if there is no Ruby
    def initialize(prefix, folder:)
      @prefix = File.expand_path(prefix).delete_suffix("/bin/ruby")
      raise Failed, "there is no Ruby in #{prefix}: #{program} cannot be run" unless File.executable?(program)

      @folder = File.join(folder, "rubies", name)
    end

    # @return [String] the prefix, as a file's name
    def name = prefix.delete_prefix("/").tr("/", "-")

    # @return [String]
    def program = "#{prefix}/bin/ruby"

    # @return [String] such as "4.0"
    def version = @version ||= config("MAJOR", "MINOR").join(".")

    # @return [String] the file that defines its RbConfig
    def rbconfig = File.join(*config("rubyarchdir"), "rbconfig.rb")

    # Makes the folder in which `ruby`, `gem`, `rake` and `rspec` are this Ruby's.
    #
    # @return [void]
    def prepare
      FileUtils.mkdir_p([bin, gem_home])
      %w[ruby gem irb erb bundle rake rspec].each do |name|
        FileUtils.rm_f("#{bin}/#{name}")
        File.symlink("#{prefix}/bin/#{name}", "#{bin}/#{name}") if File.exist?("#{prefix}/bin/#{name}")
      end
      %w[rake rspec].each { |name| borrow(name) unless File.exist?("#{bin}/#{name}") }
    end

    # @return [Array<String>] those of LIBRARIES that it lacks
    def missing_libraries
      @missing_libraries ||= LIBRARIES.reject { |name| run(program, "-r#{name}", "-e", "", env: environment).success? }
    end

    # @return [String]
    def description
      text = output(program, "-v").strip
      missing_libraries.empty? ? text : "#{text}; without #{missing_libraries.join(', ')}"
    end

    # @return [Hash{String => String}] the variables by which its programs are found
    def environment
      path = [bin, "#{prefix}/bin", *ENV.fetch("PATH").split(":")].uniq.join(":")
      { "PATH" => path, "GEM_HOME" => gem_home, "GEM_PATH" => gem_path, "MEMINTRO_MATRIX_RUBY" => name,
        "MEMINTRO_MATRIX_UNPATCHED" => "an installed Ruby has no other patch release beside it" }
    end

    # @return [Boolean]
    def yjit? = @yjit ||= run(program, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", env: environment).success?

    # As {DebianRoot#run}. Nothing is mounted: the folders are where they are.
    #
    # @return [Process::Status]
    def run(*command, env: {}, chdir: "/", out: File::NULL, **)
      env = ENV.to_h.slice(*INHERITED).merge(env).compact
      pid = spawn(env, *command, unsetenv_others: true, chdir: chdir, in: File::NULL, out: [out, "a"],
                                 err: %i[child out])
      Process.wait2(pid).last
    end

    # @return [String] what the command writes to its standard output
    def output(*command) = Open3.capture2(*command, err: File::NULL).first

    # @return [String] where commands see a folder
    def seen_at(outside, _inside) = outside

    # For {Session}, which asks a home for its entry and its root.
    def entry = self
    def root = self

    private

    def config(*names) = output(program, "-e", "puts RbConfig::CONFIG.values_at(*ARGV)", *names).split("\n")

    def bin = File.join(folder, "bin")
    def gem_home = File.join(folder, "gems")

    # Its own gems, and Debian's in pure Ruby.
    def gem_path
      @gem_path ||= "#{output(program, '-e', 'puts Gem.default_dir').strip}:/usr/share/rubygems-integration/all"
    end

    # Debian's programs in pure Ruby, for a Ruby that has none of its own.
    def borrow(name)
      raise Failed, "#{program} has no #{name}, and Debian's is not installed: gem install #{name}" unless
        File.exist?("/usr/bin/#{name}")

      File.write("#{bin}/#{name}", RubyHome::DEBIAN_PROGRAM.gsub("PROGRAM", name))
      FileUtils.chmod(0o755, "#{bin}/#{name}")
    end
  end
end
