# frozen_string_literal: true

require_relative "../support/paths"

module Memintro
  # The rest of memintro, where `memintro run` has loaded only what its report takes: most programs never name
  # {Memintro}, and start sooner and in less memory without it. The first call of a method, and the first name of a
  # constant that is not there, load it as a whole; `require "memintro"` does nothing. Files that build on it require
  # memintro/api/whole. In Ractors other than the main one it cannot be loaded.
  # @api private
  module Rest
    # The file of {Memintro}.
    MAIN_FILE = "#{Paths::CODE}.rb".freeze
    # Seconds for another thread to load it, on a very busy machine.
    PATIENCE_SECONDS = 10
    # Held while it is loaded.
    LOCK = Mutex.new
    private_constant :PATIENCE_SECONDS, :LOCK

    # What {Memintro} is extended with, beside `method_missing`, which the extension has: in Ruby it would make an Array
    # in the line of the program that calls it, which must not be seen where objects are counted.
    module Calls
      include Native::FirstCall

      # Ruby itself asks for methods such as `to_ary`, which there are not.
      # @api private
      def respond_to_missing?(name, all = false)
        return super if name.start_with?("to_")

        # Another thread may have loaded it since this one looked for the method.
        Rest.load
        singleton_class.public_method_defined?(name) || (all && singleton_class.private_method_defined?(name)) || super
      end

      # @api private
      def const_missing(name)
        Rest.load || const_defined?(name, false) ? const_get(name) : super
      end
    end

    # From now on the file of {Memintro} counts as loaded. Reading it once more, for a program that requires it, would
    # be tracked.
    #
    # @yield after it was loaded, with what it allocates untracked
    # @return [nil]
    def self.wait(&done)
      @done = done
      Native.provide(MAIN_FILE)
      Memintro.extend(Calls)
      nil
    end

    # @return [Boolean] whether it was not loaded before the call, and is now
    # @raise [Ractor::UnsafeError] in a Ractor other than the main one
    # @raise [LoadError]
    def self.load
      refuse unless Ractor.current.equal?(Ractor.main)
      return false if @done.nil? || LOCK.owned?

      Native.untracked_enter
      begin
        in_signal_handler? ? load_apart : LOCK.synchronize { bring if @done }
      ensure
        Native.untracked_leave
      end
      true
    end

    # A thread that is killed, or whose time is up, goes on until all is loaded.
    def self.bring
      Thread.handle_interrupt(Object => :never) do
        Kernel.load(MAIN_FILE)
        @done.call
        @done = nil
      end
    rescue LoadError => e
      raise LoadError, "memintro cannot be loaded (#{e.message}); if the program has called chroot or changed its " \
                       "user, call a method of Memintro before"
    end
    private_class_method :bring

    def self.refuse
      raise Ractor::UnsafeError, "memintro is not loaded, and a Ractor cannot load it; in the main Ractor, write " \
                                 "require \"memintro\" before"
    end
    private_class_method :refuse

    def self.in_signal_handler?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end
    private_class_method :in_signal_handler?

    def self.load_apart
      loader = Thread.new do
        Native.untracked_enter
        LOCK.synchronize { bring if @done }
      ensure
        Native.untracked_leave
      end
      loader.report_on_exception = false
      return loader.value if loader.join(PATIENCE_SECONDS)

      loader.kill
      raise ThreadError, "memintro could not be loaded in a signal handler within #{PATIENCE_SECONDS} s, for the " \
                         "signal came while it was being loaded; ask again later"
    end
    private_class_method :load_apart
  end
end
