# frozen_string_literal: true

require "memory_profiler"
Program.around = ->(work) { MemoryProfiler.report { work.call }.pretty_print(to_file: File::NULL) }
