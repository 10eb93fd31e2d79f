# frozen_string_literal: true

require_relative "../error"
require_relative "../support/json_text"
require_relative "../support/names"
require_relative "../support/paths"

module Memintro
  # Asks `memintro-tool` about the heap of this process. A frozen copy of the process writes all objects as lines of
  # JSON, and the tool, which the copy starts, reads them. This process only waits, and may be interrupted: then the
  # copy and the tool end without a trace.
  # @api private
  class HeapCopy
    # Default time limit of a dump, in seconds.
    SECONDS = 600
    # Most retries of a copy that hung because another thread was in malloc at its instant.
    TRIES = 3
    # Types of data objects that may be left out because their mark functions hang or crash.
    MOST_SKIPPED = 20
    # Milliseconds between two calls of a block with the progress. Where other threads compute, each look
    # waits for Ruby's lock.
    STEP = 50
    # The same without such a block. An interrupt of this thread ends the wait.
    LONG_STEP = 10_000
    # Redactions, as in `ext/memintro/src/heap_dump/redaction.rs`: the contents of strings.
    REDACTIONS = %w[strings].freeze
    # Advice for a tool that cannot be run.
    RAISE = { Errno::EAGAIN::Errno => ": raise the limit of processes (ulimit -u, pids.max)",
              Errno::EMFILE::Errno => ": raise the limit of open files (ulimit -n)" }.freeze
    private_constant :TRIES, :MOST_SKIPPED, :STEP, :LONG_STEP, :RAISE

    # @return [Float, nil] milliseconds for which Ruby stopped
    attr_reader :pause_ms
    # @return [Integer] types of data objects whose references could not be read
    attr_reader :unread_types

    # @param arguments [Array<String>] of the tool
    # @param redaction [Array<String>] members of {REDACTIONS}
    # @param seconds [Integer]
    # @param births [Boolean, Symbol] whether the lines of tracked objects are required; `:tried`: they are missing if
    #   another thread was recording at each attempt
    # @yieldparam objects [Integer] written so far, ten times a second
    # @return [String] the tool's output
    # @raise [HeapDumpError, BusyError, RactorError, UnknownRubyError]
    def self.ask(arguments, redaction: default_redaction, seconds: SECONDS, births: false, &progress)
      new(arguments, redaction: redaction, seconds: seconds, births: births).answer(&progress)
    end

    # The variables that name a program's environment. Text that may contain users' data is redacted, unless all of
    # the set variables exclude such data.
    # @return [Array<String>] see {.ask}
    def self.default_redaction
      named = %w[RAILS_ENV RACK_ENV APP_ENV].filter_map { |name| ENV[name] unless ENV[name].to_s.empty? }
      named.any? && named.all? { |name| %w[development test].include?(name) } ? [] : REDACTIONS
    end

    # See {.ask}.
    def initialize(arguments, redaction:, seconds:, births: false)
      @arguments = [tool, *arguments]
      @redaction = redaction
      @seconds = seconds
      @births = births
      @skipped = []
      @unread_types = 0
    end

    # @return [String]
    def answer(&progress)
      MainRactor.alone
      @tries = 0
      loop do
        outcome, number, text = once(&progress)
        return text if outcome == :answered

        @tries += 1 unless outcome == :stuck && skip(number)
        fail_with(outcome, number, text) unless outcome == :stuck && @tries < TRIES
      end
    end

    private

    # As {Paths.tool}, without giving up Ruby's lock where the tool is beside the Ruby files.
    def tool
      beside = File.join(Paths::CODE, Paths::TOOL)
      return beside if Native::HeapAsking.may_run(beside)

      path = Paths.tool
      Native::HeapAsking.may_run(path) ? path : raise(HeapDumpError, Paths.no_tool)
    end

    # @return [Array] outcome, a number, the tool's message
    def once
      births = @births == :tried ? @tries < TRIES - 1 : @births
      asking = Native::HeapAsking.new
      asking.begin(@arguments, head, @redaction, @seconds, @skipped, Ractor.count > 1, births)
      @pause_ms = asking.pause_ms.round(3)
      until (outcome = asking.wait(block_given? ? STEP : LONG_STEP))
        yield asking.progress.first if block_given?
      end
      printed, error_text = asking.answer
      [*outcome, outcome.first == :answered ? printed : error_text]
    ensure
      asking&.close
    end

    # Members of the first line.
    def head
      line = JsonText.line(ruby: RUBY_VERSION, pid: Native.pid, time: Time.now.to_f.round(3), redacted: @redaction.any?,
                           objects: GC.stat(:heap_live_slots))
      ", #{line.strip.delete_prefix('{').delete_suffix('}')}"
    end

    # The next copy does not call the functions of this type.
    # @return [Boolean] whether the type is new
    def skip(type)
      return false if type.zero? || @skipped.include?(type) || @skipped.size >= MOST_SKIPPED

      @skipped << type
      @unread_types += 1
      true
    end

    def fail_with(outcome, number, text)
      raise HeapDumpError, reason(outcome, number, text)
    end

    def reason(outcome, number, text)
      case outcome
      when :tool_failed
        said = Names.lines(text).strip.delete_prefix("memintro: ")
        reason = Paths.damage(Paths.tool) || "its memory may have run out"
        said.empty? ? "the tool that reads the heap ended (#{ended(number)}): #{reason}" : said
      when :no_tool
        "#{Paths.tool} cannot be run: #{SystemCallError.new(number).message}#{RAISE[number]}"
      when :too_late
        "the heap was not read within #{@seconds} s: give seconds: (--timeout) a larger number, or a faster disk"
      when :no_memory
        "the copy of this process that reads the heap got no memory for itself: a limit (ulimit -v, -d) is reached, " \
        "or none is left; nothing was written. Raise the limit"
      when :killed
        "the kernel ended the copy of this process that reads the heap: memory has run out. The program was spared; " \
        "give the machine or the container more memory, or dump another process"
      else
        "the copy of this process that reads the heap stood still or crashed #{TRIES} times: a function of a C " \
        "extension does not return, or other threads are in malloc all the time; try again later"
      end
    end

    # @param status [Integer] as waitpid has it
    def ended(status)
      signal = status & 0x7f
      signal.zero? ? "exit code #{status >> 8}" : "signal #{Signal.signame(signal) || signal}"
    end
  end
end
