# frozen_string_literal: true

require "fileutils"

# What may run once more after it has failed, and the file that keeps what failed once and passed then.
#
# For a hook of malloc, a failure that comes once in many runs is the main risk. So a failed expectation is never
# repeated. Only what ran out of time is, because that depends on what else the machine does; and not even that, where a
# file has examples marked `:race`: there, a wait that never ends is what they look for.
module FailedOnce
  FILE = File.expand_path("../../tmp/failed_once.txt", __dir__)
  # What helpers of the specs, and Timeout, say of a wait that was too long.
  OUT_OF_TIME = Regexp.union(/\A(?:not over after|.*\bnot\b.* within) [\d.]+ s\b/, /\Aexecution expired/,
                             /\A.* (?:does not end|did not become ready)\b/)
  EXPECTATION = /\ARSpec::Expectations::/
  # Lines of a process's output that are kept.
  MOST_LINES = 400
  private_constant :OUT_OF_TIME, :EXPECTATION, :MOST_LINES

  module_function

  # @param example [Hash] that failed, as RSpec's JSON has it
  # @return [Boolean] whether it waited too long, and nothing else
  def out_of_time?(example)
    error = example.fetch("exception", {})
    !error["class"].to_s.match?(EXPECTATION) && error["message"].to_s.lstrip.match?(OUT_OF_TIME)
  end

  # @param file [String] of specs, or the id of an example
  # @return [Boolean] whether it has examples that look for races
  def race?(file)
    path = file.sub(/\[[\d:,]+\]\z/, "")
    File.file?(path) && File.read(path).match?(/(?<!:):race\b|\brace: true/)
  end

  # Adds what failed to the file, which is never emptied: `rm` it when all in it has been looked at.
  #
  # @param names [Array<String>] of examples
  # @param text [String] of the process in which they failed
  def note(names, text, file: FILE)
    FileUtils.mkdir_p(File.dirname(file))
    lines = ["#{Time.now.utc.strftime('%F %T UTC')}, failed once:", *names.map { |name| "  #{name}" },
             *text.lines.last(MOST_LINES).map { |line| "    #{line.chomp}".rstrip }, ""]
    File.open(file, "a") { |out| out.write("#{lines.join("\n")}\n") }
  end
end
