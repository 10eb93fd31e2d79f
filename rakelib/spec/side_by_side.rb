# frozen_string_literal: true

require "etc"
require "fileutils"
require "json"
require "parallel"
require "yaml"

# `rake spec` and its relatives: runs spec files in several processes at a time, because most of them wait rather than
# compute. Examples marked `alone: true` measure time; they run one after the other when all others have ended.
class SideBySide
  # What may run beside others, and what measures: by the name of the part, the tag that leaves the other one out.
  PARTS = { "beside" => "~alone", "alone" => "~beside" }.freeze
  # Seconds that the long files take; the others take about `OTHERS_SECONDS`.
  TIMES = File.join(__dir__, "times.yml")
  OTHERS_SECONDS = 1
  # Short files share a process, up to this many seconds.
  BATCH_SECONDS = 8
  LOGS = File.expand_path("../../tmp/specs", __dir__)
  private_constant :PARTS, :TIMES, :OTHERS_SECONDS, :BATCH_SECONDS, :LOGS

  # The results of one process.
  Outcome = Struct.new(:files, :seconds, :succeeded, :text, :found)

  # @param arguments [Array<String>] of rspec
  # @param files [Array<String>]
  # @param task [String] whose run this is: the folder of its logs below tmp/specs, for two may run at a time
  # @param parts [Array<String>] keys of PARTS
  # @param env [Hash]
  def initialize(arguments, files:, task:, parts: PARTS.keys, env: {})
    @arguments = arguments
    @files = files
    @logs = File.join(LOGS, task)
    @parts = parts
    @env = env
    @jobs = Integer(ENV.fetch("MEMINTRO_SPEC_JOBS", (Etc.nprocessors * 2).to_s), 10)
    @times = YAML.safe_load(File.read(TIMES))
  end

  # @return [Boolean] whether all have passed
  def run
    FileUtils.rm_rf(@logs)
    FileUtils.mkdir_p(@logs)
    begun = now
    outcomes = []
    outcomes += Parallel.map(batches, in_threads: @jobs) { |files| rspec(files, "beside") } if @parts.include?("beside")
    outcomes << rspec(@files.select { |file| measures?(file) }, "alone") if @parts.include?("alone")
    show(outcomes.compact, now - begun)
  end

  private

  # The longest first, so that no long file is left for the end.
  def batches
    known, short = @files.partition { |file| seconds(file) >= BATCH_SECONDS }
    room = 0
    shared = short.sort_by { |file| -seconds(file) }.slice_when do |one, other|
      room += seconds(one)
      room = 0 if (full = room + seconds(other) > BATCH_SECONDS)
      full
    end
    (known.map { |file| [file] } + shared.to_a).sort_by { |files| -files.sum { |file| seconds(file) } }
  end

  def seconds(file)
    @times.fetch(file, OTHERS_SECONDS)
  end

  def measures?(file) = File.read(file).match?(/\balone: true/)

  def rspec(files, part)
    return if files.empty?

    name = File.join(@logs, "#{part}-#{File.basename(files.first, '.rb')}")
    begun = now
    succeeded = system(@env, "rspec", *@arguments, "--tag", PARTS.fetch(part), "--no-color", "--format", "progress",
                       "--format", "json", "--out", "#{name}.json", *files,
                       in: File::NULL, out: "#{name}.log", err: %i[child out])
    tell(Outcome.new(files, now - begun, succeeded, File.read("#{name}.log"), found(name)))
  end

  # A process that was killed leaves no results.
  def found(name)
    JSON.parse(File.read("#{name}.json"))
  rescue SystemCallError, JSON::ParserError
    nil
  end

  # Prints each process's result when it ends, and the whole output of a failed one.
  def tell(outcome)
    count = outcome.found ? outcome.found["examples"].size : 0
    names = outcome.files.map { |file| File.basename(file, "_spec.rb") }.join(", ")
    line = format("%6.1f s %4d %-6s %s\n", outcome.seconds, count, outcome.succeeded ? "ok" : "FAILED", names)
    $stdout.write(outcome.succeeded ? line : "#{line}\n#{outcome.text}\n")
    $stdout.flush
    outcome
  end

  def show(outcomes, seconds)
    examples = outcomes.flat_map { |outcome| outcome.found ? outcome.found["examples"] : [] }
    by_status = examples.group_by { |example| example["status"] }
    left_out(by_status.fetch("pending", []))
    failed = by_status.fetch("failed", [])
    broken = outcomes.reject { |one| one.succeeded || one.found&.dig("summary", "failure_count")&.positive? }
    puts "", "Failed:" if failed.any? || broken.any?
    failed.each { |one| puts "  rspec #{one['file_path']}:#{one['line_number']} # #{one['full_description']}" }
    broken.each { |outcome| puts "  rspec #{outcome.files.join(' ')} # did not run to its end" }
    puts "", "#{@jobs} processes at a time, #{seconds.round} s",
         "#{examples.size} examples, #{failed.size} failures, #{by_status.fetch('pending', []).size} pending"
    outcomes.all?(&:succeeded)
  end

  def left_out(pending)
    reasons = pending.group_by { |example| example["pending_message"] }
    puts "", "Left out:" if reasons.any?
    reasons.each { |reason, all| puts "  #{all.size} x #{reason}" }
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
