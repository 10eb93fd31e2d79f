# frozen_string_literal: true

require "digest"
require "fileutils"
require "timeout"
require_relative "mutation"

module Fuzz
  # Gives one reader wrong input again and again. Allowed is an answer, or an error that says so in memintro's own
  # words; nothing else, no wait beyond a limit, and no memory beyond another. An input that breaks that is kept.
  class Target
    # Seconds that one input may take.
    LONGEST_SECONDS = 20
    # Bytes by which the process may grow: what stays is a leak, what one input takes at a time is too much.
    MOST_GROWTH = 300 << 20
    KEPT = File.expand_path("../../tmp/fuzz", __dir__)

    # The error, with the input in a file.
    Failure = Struct.new(:what, :file, :times)

    attr_reader :failures, :inputs, :outcomes

    def initialize(seed)
      @mutation = Mutation.new(seed)
      @failures = {}
      @outcomes = Hash.new(0)
      @inputs = 0
    end

    # @yieldreturn [Boolean] whether to go on
    # @return [self]
    def run
      prepare
      before = peak_bytes
      once(before) while yield
      self
    ensure
      finish
    end

    def name = self.class.name[/\w+\z/].downcase

    def to_s
      shown = failures.values.map { |failure| "  #{failure.times} x #{failure.what}\n    #{failure.file}" }
      kinds = outcomes.sort_by { |_, count| -count }.map { |kind, count| "#{count} #{kind}" }
      ["#{name}: #{inputs} inputs, #{kinds.join(', ')}", *shown].join("\n")
    end

    private

    def prepare; end
    def finish; end

    def once(before)
      @inputs += 1
      input = make
      outcome = Timeout.timeout(LONGEST_SECONDS) { try(input) }
      outcomes[outcome] += 1
      grown = peak_bytes - before
      note("it takes #{grown >> 20} MiB", input) if grown > MOST_GROWTH
    rescue Memintro::Error => e
      outcomes[e.class.name] += 1
    rescue Timeout::Error
      note("it takes more than #{LONGEST_SECONDS} s", input)
    rescue StandardError, SystemStackError, NoMemoryError => e
      note("#{e.class}: #{e.message.lines.first.to_s.chomp[0, 200]} at #{place(e)}", input, "#{e.class} #{place(e)}")
    end

    def place(error)
      lines = error.backtrace.to_a
      lines.find { |line| line.include?("/lib/memintro") }.to_s[%r{lib/memintro.*?:\d+}] || lines.first
    end

    def note(what, input, kind = what[0, 60])
      outcomes["failures"] += 1
      return failures[kind].times += 1 if failures.key?(kind)

      FileUtils.mkdir_p(KEPT)
      file = File.join(KEPT, "#{name}-#{Digest::SHA256.hexdigest(input)[0, 12]}")
      File.binwrite(file, input)
      failures[kind] = Failure.new(what, file, 1)
    end

    # The process whose memory counts.
    def peak_bytes(pid = Process.pid)
      File.read("/proc/#{pid}/status")[/VmHWM:\s+(\d+)/, 1].to_i * 1024
    end
  end
end
