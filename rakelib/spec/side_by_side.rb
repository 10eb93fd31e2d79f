# frozen_string_literal: true

require "etc"
require "fileutils"
require "parallel"
require "yaml"
require_relative "spec_process"
require_relative "spec_summary"

# `rake spec` and its relatives: runs spec files in several processes at a time, because most of them wait rather than
# compute. Examples marked `alone: true` measure time; they run one after the other when all others have ended.
#
# Processes that failed beside others run once more at the end, one at a time (FailedOnce says which not): what passes
# then is named in the summary and kept in tmp/failed_once.txt, and what fails again has failed. Nothing that ran alone
# is repeated.
class SideBySide
  # What may run beside others, and what measures: by the name of the part, the tag that leaves the other one out.
  PARTS = { "beside" => "~alone", "alone" => "~beside" }.freeze
  # Seconds that the long files take; the others take about `OTHERS_SECONDS`.
  TIMES = File.join(__dir__, "times.yml")
  OTHERS_SECONDS = 1
  # Short files share a process, up to this many seconds.
  BATCH_SECONDS = 16
  LOGS = File.expand_path("../../tmp/specs", __dir__)
  # If more examples or processes fail than that, it is not by chance, and nothing is repeated.
  MOST_REPEATED = 10
  private_constant :PARTS, :TIMES, :OTHERS_SECONDS, :BATCH_SECONDS, :LOGS, :MOST_REPEATED

  # @param arguments [Array<String>] of rspec
  # @param files [Array<String>]
  # @param task [String] whose run this is: the folder of its logs below tmp/specs, for two may run at a time
  # @param parts [Array<String>] keys of PARTS
  # @param env [Hash]
  # @param failed_once [String] the file to which is added what failed once
  # @param options [Hash] of SpecProcess
  def initialize(arguments, files:, task:, parts: PARTS.keys, env: {}, logs: LOGS, output: $stdout,
                 failed_once: FailedOnce::FILE, **options)
    @arguments = arguments
    @files = files
    @logs = File.join(logs, task)
    @parts = parts
    @output = output
    @failed_once = failed_once
    @options = { env: env, **options }
    @jobs = Integer(ENV.fetch("MEMINTRO_SPEC_JOBS", (Etc.nprocessors * 2).to_s), 10)
    @times = YAML.safe_load(File.read(TIMES))
  end

  # @return [Boolean] whether all have passed
  def run
    FileUtils.rm_rf(@logs)
    FileUtils.mkdir_p(@logs)
    begun = now
    beside = Parallel.map(part("beside") { batches }, in_threads: @jobs) { |files| rspec(files, "beside") }
    measuring = part("alone") { @files.select { |file| measures?(file) } }
    alone = measuring.any? ? [rspec(measuring, "alone")] : []
    summary = SpecSummary.new(beside + alone, repeated(beside))
    @output.puts summary, "", "#{@jobs} processes at a time, #{(now - begun).round} s", summary.closing_line
    summary.success?
  end

  private

  def part(name) = @parts.include?(name) ? yield : []

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
    log = File.join(@logs, "#{part}-#{File.basename(files.first, '.rb')}")
    tell(SpecProcess.new(files, arguments: [*@arguments, "--tag", PARTS.fetch(part)], log: log, **@options).run)
  end

  # Prints each process's result when it ends, and the whole output of a failed one.
  def tell(process, title: "")
    names = process.files.map { |file| File.basename(file.sub(/\[.*/, ""), "_spec.rb") }.uniq.join(", ")
    line = format("%6.1f s %4d %-6s %s%s\n", process.seconds, process.examples.size,
                  process.succeeded? ? "ok" : "FAILED", title, names)
    @output.write(process.succeeded? ? line : "#{line}\n#{process.text}\n")
    @output.flush
    process
  end

  # Runs once more what failed beside others.
  #
  # @return [Hash{SpecProcess => SpecProcess}] by the process that failed: the one that repeated it
  def repeated(processes)
    failed = processes.reject(&:succeeded?)
    late = failed.select(&:may_run_again?)
    return {} if late.empty? || failed.sum { |process| [process.failed.size, 1].max } > MOST_REPEATED

    @output.puts "", "Once more, one process at a time, what failed beside others:"
    late.each_with_index.to_h { |process, index| [process, again(process, index)] }
  end

  def again(process, index)
    tell(process.once_more(log: File.join(@logs, "again-#{index}")).run, title: "again: ").tap do |second|
      next unless second.makes_up_for?(process)

      names = process.failed.map { |example| SpecSummary.named(example) }
      FailedOnce.note(names.empty? ? process.files : names, process.text, file: @failed_once)
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
