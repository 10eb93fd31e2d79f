# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"

module Memintro
  # Methods of {Memintro} that let commands in a shell ask this process: `memintro ps`, `memintro top PID` and so on.
  # docs/control_socket.md says what protects it.
  #
  # With `MEMINTRO_LISTEN=1` in the environment, every process that requires memintro listens.
  module Listen
    # Most seconds to wait for the socket.
    PATIENCE_SECONDS = 10
    private_constant :PATIENCE_SECONDS

    # Opens a Unix socket through which this user (and root) can start and stop tracking and read figures of this
    # process. It is removed at exit, and each forked child gets its own. Costs a thread that sleeps until a request
    # comes. May be called from a signal handler, and so through rbtrace.
    #
    # @param name [String, nil] name of the process besides its id; nil: its program's name
    # @return [String, nil] path of the socket; where the process listens already, that one's; nil under
    #   `MEMINTRO_DISABLE`, where there is none
    # @raise [ListenError] if there is no safe folder for the socket
    # @raise [TypeError, ArgumentError] on a wrong name
    # @raise [RactorError] in a Ractor other than the main one
    # @example
    #   Memintro.listen(name: "web")   # then, in a shell: memintro top web
    def listen(name: nil)
      return if Brake.holds?

      MainRactor.only
      name = checked_listener_name(name)
      return start_to_listen(name) unless in_signal_handler?

      # A signal handler cannot load files or take locks, so another thread does.
      starter = Thread.new { start_to_listen(name) }
      starter.report_on_exception = false
      return starter.value if starter.join(PATIENCE_SECONDS)

      starter.kill
      raise ListenError, "the socket was not ready after #{PATIENCE_SECONDS} s, because another thread loads code or " \
                         "holds Ruby's lock; call Memintro.listen again later"
    end

    # For `MEMINTRO_LISTEN=1`: an error must not affect the program.
    # @api private
    def listen_if_asked
      Loader.need(:Settings)
      return unless Settings.listen?

      start_to_listen(nil)
    rescue StandardError, ScriptError => e
      begin
        STDERR.write("memintro: process #{Native.pid} does not listen: #{e.message}\n")
      rescue StandardError
        nil # without standard error there is no reader
      end
    end

    private

    def start_to_listen(name)
      untracked do
        load_server
        Control.start(name)
      end
    rescue ThreadError => e
      raise ListenError, "this process cannot listen: #{e.message}; end other threads, or raise the limit " \
                         "(ulimit -u, pids.max of the control group), and try again"
    end

    # Ruby refuses locks there.
    def in_signal_handler?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end

    # No autoload: what asks other processes is below the same constant, and takes less.
    def load_server
      require_relative "../control"
      Loader.need(*Loader::QUESTIONS)
    rescue LoadError, SystemCallError => e
      raise ListenError, Loader.unreadable(e)
    rescue Error => e
      raise ListenError, e.message
    end

    def checked_listener_name(name)
      name = Arguments.text(:name, name, optional: true)
      return name if name.nil? || name.match?(/\A(?!\d+\z)[\w.:@+-]{1,64}\z/)

      raise ArgumentError, "name is #{Arguments.shown(name)}; it must have 1 to 64 letters, digits, or . : @ + - _, " \
                           "and must not be a number, or nil"
    end
  end
end
