# frozen_string_literal: true

require "json"
require_relative "failed_once"

# One process of rspec that runs some spec files: what it was asked to run, and what came of it.
class SpecProcess
  # Against hangs alone: one that is stuck is ended then, and the others still run.
  MOST_SECONDS = 1800
  private_constant :MOST_SECONDS

  attr_reader :files, :seconds, :text

  # @param files [Array<String>] or ids of examples
  # @param arguments [Array<String>] of rspec
  # @param log [String] path of its output, without an ending
  # @param env [Hash]
  # @param most_seconds [Numeric] after which it is ended
  def initialize(files, arguments:, log:, env: {}, most_seconds: MOST_SECONDS)
    @files = files
    @arguments = arguments
    @log = log
    @env = env
    @most_seconds = most_seconds
  end

  # @return [SpecProcess] itself, when the process has ended
  def run
    begun = now
    # `timeout` ends the children of the process as well, which are in its group.
    system(@env, "timeout", "--kill-after=20", @most_seconds.to_s,
           "rspec", *@arguments, "--no-color", "--format", "progress", "--format", "json", "--out", "#{@log}.json",
           *@files, in: File::NULL, out: "#{@log}.log", err: %i[child out])
    @status = $?
    @seconds = now - begun
    @text = File.read("#{@log}.log")
    @results = read_results
    self
  end

  # @return [Array<Hash>] in the order in which they ran; none if the process was killed before it wrote them
  def examples = @results ? @results.fetch("examples") : []

  # @return [Array<Hash>]
  def failed = with_status("failed")

  # Whether all has passed, to the end.
  def succeeded? = whole? && @status.success?

  # Whether examples have failed, and nothing else went wrong.
  def examples_failed? = whole? && failed.any? && @status.exitstatus == 1 && outside.zero?

  # Whether its examples failed, or it took too long, and not where races are looked for.
  def may_run_again?
    return false if succeeded?
    return @seconds >= @most_seconds && @files.none? { |file| FailedOnce.race?(file) } unless examples_failed?

    failed.none? { |example| FailedOnce.race?(example.fetch("file_path")) }
  end

  # The same once more: the examples up to the last that failed, so that each finds what it found before; all files, if
  # something else went wrong.
  #
  # @param log [String] path of its output, without an ending
  # @return [SpecProcess] that was not run yet
  def once_more(log:)
    last = examples.rindex { |example| example["status"] == "failed" }
    what = examples_failed? ? examples[0..last].map { |example| example.fetch("id") } : @files
    self.class.new(what, arguments: @arguments, log: log, env: @env, most_seconds: @most_seconds)
  end

  # Whether this process, which ran an earlier one once more, has passed all that failed in that one.
  def makes_up_for?(earlier)
    succeeded? && with_status("passed").any? && (earlier.failed - passed_again(earlier)).empty?
  end

  # @return [Array<Hash>] of the examples that failed in the earlier process, those that have passed in this one
  def passed_again(earlier)
    passed = with_status("passed").map { |example| example.fetch("id") }
    earlier.failed.select { |example| passed.include?(example.fetch("id")) }
  end

  private

  # An example that ends the process, or during which it is ended, has no status; those after it never ran.
  def whole? = !@results.nil? && examples.all? { |example| %w[passed failed pending].include?(example["status"]) }

  def with_status(status) = examples.select { |example| example["status"] == status }

  def outside = @results.fetch("summary").fetch("errors_outside_of_examples_count")

  # A process that was killed leaves none.
  def read_results
    JSON.parse(File.read("#{@log}.json"))
  rescue SystemCallError, JSON::ParserError
    nil
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
