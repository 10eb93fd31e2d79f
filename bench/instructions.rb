# frozen_string_literal: true

# What tracking costs in instructions, counted by valgrind: the same on every machine, however busy, where times are
# noise. It says nothing of what the processor's caches make of them; the table of `bin/bench` does.
# `bin/bench instructions [--columns A,B] [WORKLOAD…]`. Needs Debian's valgrind.
#
# Each workload is run twice, once three times as long: the difference is the work alone, not starting and reporting.
# Ruby gets a heap that need not grow much. With the library's own objects in it a small one grows a step earlier, and
# half as many collections would look like a tool that saves time. One more or less is still a percent or two.

require "optparse"
require_relative "columns"
require_relative "setup"
require_relative "statistics"
require_relative "workloads"

module Bench
  # Counts the instructions of programs.
  class Instructions
    SCALES = [0.1, 0.3].freeze
    COLUMNS_COUNTED = %w[off idle sampled full].freeze
    HEAP = { "RUBY_GC_HEAP_INIT_SLOTS" => "200000" }.freeze

    # @param names [Array<String>] of workloads; none: all
    # @param columns [Array<String>] beside plain Ruby
    def initialize(names, columns)
      programs = WORKLOADS.reject(&:server)
      @workloads = names.empty? ? programs : named(names, programs, "workload")
      @plain, *@columns = named(["plain", *columns], COLUMNS, "column")
      @setup = Setup.new
    end

    def call
      system("which", "valgrind", out: File::NULL) || abort("valgrind is not here: apt-get install valgrind")
      @setup.prepare(@workloads, @columns)
      puts format("%-16s", "instructions") + @columns.map { |column| format("%16s", column.name) }.join
      ratios = @workloads.map { |workload| line(workload) }
      means = ratios.transpose.map { |values| Statistics.geometric_mean(values) }
      puts format("%-16s", "geometric mean") + means.map { |mean| shown(mean) }.join
    end

    private

    def named(names, all, what)
      unknown = names - all.map(&:name)
      abort "no #{what} #{unknown.join(", ")}; there are #{all.map(&:name).join(", ")}" unless unknown.empty?

      names.map { |name| all.find { |one| one.name == name } }
    end

    def line(workload)
      plain = work(workload, @plain)
      ratios = @columns.map { |column| work(workload, column) / plain }
      puts format("%-16s", workload.name) + ratios.map { |ratio| shown(ratio) }.join
      ratios
    end

    def work(workload, column)
      counts = SCALES.map { |scale| count(workload, column, scale) }
      (counts[1] - counts[0]).to_f
    end

    def count(workload, column, scale)
      result = File.join(@setup.scratch, "result")
      valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
      command = [*valgrind, *column.ruby(workload, result, @setup), { chdir: @setup.scratch, err: %i[child out] }]
      text = IO.popen({ **HEAP, **workload.env, **column.environment(@setup, scale) }, command, &:read)
      text[/Collected : (\d+)/, 1]&.to_i || abort("#{workload.name}, #{column.name}: valgrind says\n#{text}")
    end

    def shown(ratio) = format("%16s", format("%.3fx", ratio))
  end
end

columns = Bench::Instructions::COLUMNS_COUNTED
names = OptionParser.new { |parser| parser.on("--columns LIST", Array) { |list| columns = list } }.parse(ARGV)
Bench::Instructions.new(names, columns).call
