# frozen_string_literal: true

# What came of a run of specs, as text: what was left out, what failed once and passed when it ran again, and what
# has failed.
class SpecSummary
  # Lines of a failure's text that are shown again; the whole text stands where its process ended.
  MOST_LINES = 6
  private_constant :MOST_LINES

  # @param processes [Array<SpecProcess>]
  # @param repetitions [Hash{SpecProcess => SpecProcess}] by a process that failed: the one that ran it once more
  def initialize(processes, repetitions)
    @processes = processes
    @repetitions = repetitions
    @passed_again, @red = processes.reject(&:succeeded?).partition { |one| repetitions[one]&.makes_up_for?(one) }
  end

  # @param example [Hash] as RSpec's JSON has it
  # @return [String] the command that runs it, and its name
  def self.named(example)
    "rspec #{example['file_path']}:#{example['line_number']} # #{example['full_description']}"
  end

  # @return [Boolean] whether each process has passed, in the end
  def success? = @red.empty?

  # @return [String]
  def to_s
    [list("Left out:", left_out),
     list("Failed beside others, passed when run again by themselves:", once),
     list("Failed:", (failed_examples.map { |example| named(example) } + broken_processes))].join
  end

  # @return [String] the counts of examples
  def closing_line
    again = examples_once.size + processes_once.size
    "#{@processes.sum { |process| process.examples.size }} examples, #{failed_examples.size} failures, " \
      "#{pending.size} pending" + (again.positive? ? ", #{again} failed once and passed when run again" : "")
  end

  private

  def list(title, lines) = ("\n#{title}\n#{lines.map { |line| "  #{line}\n" }.join}" if lines.any?)

  def pending = @processes.flat_map(&:examples).select { |example| example["status"] == "pending" }

  def left_out
    pending.group_by { |example| example["pending_message"] }.map { |reason, all| "#{all.size} x #{reason}" }
  end

  # What has passed in the end, with the beginning of what it said before.
  def once
    texts = examples_once.map { |example| [named(example), example.dig("exception", "message").to_s.lines] }
    texts += processes_once.map { |process| [broken(process), process.text.lines.last(MOST_LINES)] }
    texts.flat_map { |name, lines| [name, *shortened(lines)] }
  end

  def examples_once = @repetitions.flat_map { |process, again| again.passed_again(process) }

  def processes_once = @passed_again.reject(&:examples_failed?)

  def failed_examples
    results_of_red.flat_map(&:failed).uniq { |example| example["id"] } - examples_once
  end

  def broken_processes
    results_of_red.reject { |one| one.succeeded? || one.examples_failed? }.map { |one| broken(one) }
  end

  def results_of_red = @red.flat_map { |process| [process, @repetitions[process]].compact }

  def named(example) = self.class.named(example)

  def broken(process) = "rspec #{process.files.join(' ')} # did not run to its end, or failed outside of examples"

  def shortened(lines) = lines.map(&:rstrip).reject(&:empty?).first(MOST_LINES).map { |line| "    #{line}" }
end
