# frozen_string_literal: true

require_relative "../support/paths"

module Memintro
  # Loads files that few programs need when they are needed.
  #
  # An `autoload` does this, except in signal handlers: Ruby's require takes locks, and raises ThreadError there.
  # Methods that may be called from a handler call {need} first. Classes that programs name themselves extend Lazy.
  # @api private
  module Loader
    # Seconds for another thread to load some small files, on a very busy machine.
    PATIENCE_SECONDS = 10
    # Mark of a thread that loads files now: a variable of the thread, because its other fibers must not wait for it.
    BUSY = :__memintro_loads
    # Held while files are loaded.
    LOADING = Mutex.new
    private_constant :PATIENCE_SECONDS, :BUSY, :LOADING
    # By the name of a constant: the file that defines it, and whether that file was loaded to its end. In constants,
    # which other Ractors may read.
    module Places; end
    # See {Places}.
    module Done; end
    private_constant :Places, :Done
    # The Ractor that loads this file. Other files may be loaded by another one.
    MAIN_RACTOR = Ractor.current

    # Lets constants be loaded when they are named first, or needed.
    #
    # @param within [Module] whose constants; each name stands once in all modules
    # @param files [Hash{Symbol => String}] the constants, and their files in lib/memintro
    # @return [nil]
    def self.lazy(within, files)
      files.each do |name, file|
        # It is there already where a thread was killed while it loaded what lists it.
        Places.const_set(name, "#{Paths::CODE}/#{file}.rb".freeze) unless Places.const_defined?(name, false)
        within.autoload(name, Places.const_get(name, false))
      end
      nil
    end

    # Lets methods of {Memintro} be loaded when one of them is called first: {Memintro} then is extended with their
    # module.
    #
    # @param modules [Hash{Symbol => Array(String, Array<Symbol>)}] by the module's name: its file in lib/memintro, its
    #   public methods, and whether these walk the heap
    # @return [nil]
    def self.lazy_methods(modules)
      modules.each do |name, (file, methods, walks)|
        lazy(Memintro, name => file)
        methods.each { |method| LazyMethods.stand_in(method, name, walks) }
      end
      Memintro.extend(LazyMethods)
      nil
    end

    # While another thread loads the file, `autoload?` says that nothing is left to load; but a thread that then names
    # the constant waits for that one, which waits for it in turn. So a file is required here until it is complete.
    #
    # @param names [Array<Symbol>] constants that are loaded by name; for other Ractors than the main one
    #   what a file requires comes before it
    # @param within [Module] whose constants
    # @return [nil]
    # @raise [RactorError] in another Ractor than the main one, where this Ruby loads nothing by name (3.3)
    def self.need(*names, within: Memintro)
      names = names.reject { |name| Done.const_defined?(name, false) }
      return if names.empty?

      bring(names.map { |name| Places.const_get(name, false) }.uniq)
      names.each { |name| Done.const_set(name, true) unless Done.const_defined?(name, false) }
      nil
    rescue Ractor::UnsafeError
      missing = names.select { |name| within.autoload?(name) }.map { |name| "#{within}::#{name}" }
      raise RactorError, "#{missing.join(', ')} is not loaded, and Ruby #{RUBY_VERSION} cannot load it in a " \
                              "Ractor; call this method once in the main Ractor before"
    end

    # @param name [String] a file of lib/memintro
    # @return [nil]
    def self.file(name)
      bring([File.join(Paths::CODE, "#{name}.rb")])
    end

    def self.bring(paths)
      refuse_what_interrupts(paths)
      Memintro.untracked { in_signal_handler? ? load_apart(paths) : load(paths) }
      nil
    rescue LoadError => e
      raise Error, unreadable(e)
    end
    private_class_method :bring

    # @param error [LoadError]
    # @return [String]
    def self.unreadable(error)
      "a file of memintro cannot be loaded (#{error.message}); #{remedy(error.path)}"
    end

    # Ruby does not say why it cannot load a file.
    def self.remedy(path)
      File.open(path.to_s) { nil }
    rescue Errno::EMFILE, Errno::ENFILE
      "no more files may be open: close some, or raise the limit (ulimit -n), and ask again"
    rescue SystemCallError
      "if the program has called chroot or changed its user, do what loads it before: call the method once"
    else
      "it can be opened now: no more files may have been open (ulimit -n), or it was missing; ask again"
    end
    private_class_method :remedy

    # @return [Boolean]
    def self.in_signal_handler?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end

    # Not `require`: versions of it in other libraries, such as RubyGems, take locks and do not work in Ractors.
    #
    # A thread that is killed, or whose time is up, goes on until all is loaded: half of a file would stay for others.
    def self.load(paths)
      Thread.handle_interrupt(Object => :never) do
        # No other Ractor can have the lock.
        Ractor.current.equal?(MAIN_RACTOR) ? LOADING.synchronize { require_all(paths) } : require_all(paths)
      end
    end
    private_class_method :load

    def self.require_all(paths)
      Thread.current.thread_variable_set(BUSY, true)
      paths.each { |path| require_relative(path) }
    ensure
      Thread.current.thread_variable_set(BUSY, nil)
    end
    private_class_method :require_all

    # A signal handler or finalizer amid this thread's own loading would wait for itself, in another fiber, too.
    def self.refuse_what_interrupts(paths)
      return unless Thread.current.thread_variable_get(BUSY)

      raise Error, "#{paths.join(', ')} cannot be loaded, for this handler or finalizer has interrupted the thread " \
                   "while it loads files of memintro; ask again later"
    end
    private_class_method :refuse_what_interrupts

    def self.load_apart(paths)
      loader = Thread.new { Memintro.untracked { load(paths) } }
      loader.report_on_exception = false
      return loader.value if loader.join(PATIENCE_SECONDS)

      loader.kill
      raise Error, "#{paths.join(', ')} could not be loaded in a signal handler within #{PATIENCE_SECONDS} s, for " \
                   "the signal came while it was being loaded; ask again later"
    end
    private_class_method :load_apart
  end

  # What {Memintro} is extended with instead of methods whose files are loaded late. A module that is loaded later
  # comes first. All of these methods work in the main Ractor only.
  # @api private
  module LazyMethods
    @homes = {}

    # @param name [Symbol] the method
    # @param home [Symbol] the module that has it
    # @param walks [Boolean] whether it walks the heap
    def self.stand_in(name, home, walks)
      @homes[name] = home
      # Not an alias: together with `public`, it makes three times as many objects.
      define_method(name, instance_method(walks ? :lazy_walk : :lazy))
    end

    # @param name [Symbol] the method
    # @return [Symbol] the module that has it
    def self.home(name)
      @homes.fetch(name)
    end

    # Loads all of them: the first call of a stand-in makes an Array in the line of the program that calls it, which
    # must not be seen where objects are counted. It is small, so malloc is not asked for it.
    #
    # @return [nil]
    def self.load_all
      @homes.values.uniq.each { |home| load(home) }
      nil
    end

    # Loads what most questions need, so that none waits for files later. Ruby's `require` gives up its lock three times
    # for each file since 3.3: beside two threads that compute, 15 files took 7 s.
    #
    # @return [nil]
    def self.load_for_questions
      load_all
      Loader.need(:Totals, :HeapCopy, :Holders, :Report)
    end

    # What memintro's own files need while they are loaded has to be there before.
    #
    # @param home [Symbol] a module of methods
    # @return [nil]
    def self.load(home)
      Memintro.untracked do
        Loader.need(home)
        Memintro.extend(Memintro.const_get(home))
      end
      nil
    end

    private

    # Loads the method that was called, and calls it.
    def lazy(*arguments, **options, &block)
      name = __callee__
      MainRactor.refuse(name) unless Ractor.current.equal?(Ractor.main)
      LazyMethods.load(LazyMethods.home(name))
      Memintro.public_send(name, *arguments, **options, &block)
    end

    # The same for walks of the heap, which are refused to the main Ractor, too, while there are others.
    def lazy_walk(...)
      MainRactor.alone
      LazyMethods.load(LazyMethods.home(__callee__))
      Memintro.public_send(__callee__, ...)
    end
  end

  # Classes that programs name themselves, but that few programs need. The class exists from the start, and its file is
  # loaded when an object is made or a constant in it is named. Ruby refuses `autoload` in signal handlers and in
  # Ractors, with unclear messages. This works in signal handlers, and in Ractors it says what to do.
  #
  # A class that is loaded has a constant LOADED. It is this module, for programs may have a constant of that name, too.
  # @api private
  module Lazy
    # The classes, and the files in lib/memintro that load them.
    FILES = { Diff: "diff", ProcessMemory: "process/memory", RSSSampler: "sampler", Snapshot: "snapshot",
              Trend: "trend" }.freeze
    # Those that work in every Ractor, where Ruby can load them there.
    EVERYWHERE = %i[ProcessMemory].freeze
    Ractor.make_shareable(FILES)

    # {Snapshot.load}, until the file of Snapshot is loaded.
    module Load
      # @return [Snapshot]
      def load(...)
        Lazy.load(self)
        # Called only until the file is loaded.
        public_send(:load, ...)
      end
    end

    # @param klass [Class]
    # @return [nil]
    # @raise [RactorError] in a Ractor other than the main one
    def self.load(klass)
      return if loaded?(klass)

      name, file = FILES.find { |each, _| klass <= Memintro.const_get(each) }
      return Loader.file(file) if Ractor.current.equal?(Loader::MAIN_RACTOR) || EVERYWHERE.include?(name)

      raise Ractor::UnsafeError
    rescue Ractor::UnsafeError
      raise RactorError, "Memintro::#{name} is not loaded, and a Ractor cannot load it; in the main Ractor, " \
                              "write require \"memintro/#{file}\" before"
    end

    # @param klass [Class]
    # @return [Boolean]
    def self.loaded?(klass)
      klass.const_defined?(:LOADED) && klass.const_get(:LOADED).equal?(self)
    end

    # Named arguments here and below: Ruby 3.4 crashes in half of the Ractors that `super` passes `...` on in.
    def new(*arguments, **options, &block)
      Lazy.load(self)
      super
    end

    def inherited(subclass)
      Lazy.load(self)
      super
    end

    def const_missing(name)
      return super if Lazy.loaded?(self)

      Lazy.load(self)
      const_get(name)
    end
  end
end
