# frozen_string_literal: true

# The process that is measured: `ruby program.rb WORKLOAD_FILE RESULT_FILE [PRELUDE_FILE]`. It is the same for every
# column; what a column does inside the process is in its prelude.
#
# Rule for neighbours: require nothing here. Whatever is loaded is part of every figure.
module Program
  class << self
    # Checksum of the workload: equal in all columns, or they did not do the same work.
    attr_accessor :result
    # Of the server: takes its Rack application, returns what is served instead.
    attr_accessor :middleware

    # Wraps the workload; a prelude that needs a block form sets it.
    attr_writer :around

    def around
      @around || :call.to_proc
    end

    def rounds(count)
      (count * scale).ceil.times { |i| yield i }
    end

    # Written by a finalizer, which runs after every at_exit block: a report made at exit counts too.
    def write_result_at_exit(path)
      @last = Object.new
      ObjectSpace.define_finalizer(@last, proc { File.write(path, figures) })
    end

    private

    def scale
      @scale ||= Float(ENV.fetch("BENCH_SCALE", "1"))
    end

    def figures
      peak_kb = File.read("/proc/self/status")[/^VmHWM:\s+(\d+) kB/, 1]
      "peak_rss_bytes #{peak_kb.to_i * 1024}\nresult #{result}\nseen #{seen}\n"
    end

    # Allocations that the tool under test says it saw, when it can say. Asked after the peak was read: what is loaded
    # to answer is no part of what is measured.
    def seen
      Memintro.totals.allocations if defined?(Memintro.tracking?) && Memintro.tracking?
    end
  end
end

workload, result, prelude = ARGV.shift(3)
Program.write_result_at_exit(result)
require prelude if prelude
Program.around.call(-> { load workload })
