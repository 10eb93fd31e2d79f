# frozen_string_literal: true

require "rbconfig"

module Bench
  # One way to run a workload. Everything but the fields below is the same in all columns.
  #
  # To add a peer: a line in COLUMNS; when it works inside the process, a file in preludes/.
  #
  # name::    for --columns and the CSV
  # what::    for the legend
  # prelude:: file in preludes/ that the measured process requires first
  # command:: turns Ruby's command line into the one to run; gets a scratch folder, too
  # env::     what is added to the environment; gets the Setup
  # needs::   :memintro, or the apt package
  # sees::    "the tool must have seen allocations, or the figure is worth nothing"
  # bound::   gets limits of time and memory, and one more chance to finish is not given
  # on::      :all workloads, only the :server, or only :programs, the others; by default programs
  Column = Struct.new(:name, :what, :prelude, :command, :env, :needs, :sees, :bound, :on, keyword_init: true) do
    def initialize(on: :programs, **) = super

    def runs?(workload)
      on == :all || on == (workload.server ? :server : :programs)
    end

    def prelude_path
      prelude && File.join(__dir__, "preludes", "#{prelude}.rb")
    end

    # Ruby's command line for a workload, without what this column puts around it.
    def ruby(workload, result, setup)
      [RbConfig.ruby, "-I#{setup.lib}", File.join(__dir__, "program.rb"), workload.path, result, *prelude_path]
    end

    def command_line(ruby, scratch, setup)
      command ? command.call(ruby, scratch, setup) : ruby
    end

    def environment(setup, scale)
      { "BENCH_SCALE" => scale.to_s, "RUBYOPT" => nil, "LD_PRELOAD" => nil, **(env ? env.call(setup) : {}) }
    end
  end

  TABLE = { "MEMINTRO_RECORDS" => "table" }.freeze

  # The first column is what the others are compared with; the second is the same again, and shows the noise.
  COLUMNS = [
    Column.new(name: "plain", what: "Ruby alone", on: :all),
    Column.new(name: "again", what: "Ruby alone, once more: the distance from 1.00x is noise", on: :all),
    Column.new(name: "off", what: "memintro required and never started", needs: :memintro, prelude: "required",
               on: :all),
    Column.new(name: "middleware", what: "the Rack middleware, for requests that get no line", needs: :memintro,
               prelude: "middleware", on: :server),
    Column.new(name: "line", what: "the Rack middleware, and a MEMORY line for each request", needs: :memintro,
               prelude: "line", on: :server),
    Column.new(name: "stopped", what: "Memintro.start and Memintro.stop, then the workload", needs: :memintro,
               prelude: "stopped"),
    Column.new(name: "idle", what: "hook preloaded and not tracking", needs: :memintro,
               env: ->(setup) { { "LD_PRELOAD" => setup.hook } }, on: :all),
    Column.new(name: "full", what: "preloaded and tracking from start to exit, with a report (memintro env --report)",
               needs: :memintro, sees: true, env: ->(setup) { setup.preload_environment }, on: :all),
    Column.new(name: "sampled", what: "as full, but in sampled mode (memintro env --mode sampled)", needs: :memintro,
               sees: true, env: ->(setup) { setup.preload_environment("--mode", "sampled") }, on: :all),
    Column.new(name: "stacks", what: "as full, with stacks of 16 lines (memintro env --stack-depth 16)",
               needs: :memintro, sees: true, env: ->(setup) { setup.preload_environment("--stack-depth", "16") }),
    Column.new(name: "sampled stacks", what: "as sampled, with stacks of 16 lines", needs: :memintro, sees: true,
               env: ->(setup) { setup.preload_environment("--mode", "sampled", "--stack-depth", "16") }),
    Column.new(name: "objects", what: "as full, with every Ruby object (memintro env --objects)", needs: :memintro,
               sees: true, env: ->(setup) { setup.preload_environment("--objects") }, on: :all),
    Column.new(name: "sampled objects", what: "as sampled, with every Ruby object", needs: :memintro, sees: true,
               env: ->(setup) { setup.preload_environment("--mode", "sampled", "--objects") }),
    Column.new(name: "objects sampled", what: "as sampled, with a sample of Ruby objects (--objects=sampled)",
               needs: :memintro, sees: true,
               env: ->(setup) { setup.preload_environment("--mode", "sampled", "--objects=sampled") }, on: :all),
    Column.new(name: "live sampled", what: "Memintro.start(mode: :sampled) on the first line, a report on the last",
               needs: :memintro, prelude: "live_sampled", sees: true, on: :all),
    Column.new(name: "live", what: "Memintro.start on the first line, Memintro.report on the last", needs: :memintro,
               prelude: "live", sees: true, on: :all),
    Column.new(name: "table", what: "as full, with the table of blocks (MEMINTRO_RECORDS=table)", needs: :memintro,
               sees: true, env: ->(setup) { { **setup.preload_environment, **TABLE } }, on: :all),
    Column.new(name: "live table", what: "as live, with the table of blocks", needs: :memintro, prelude: "live",
               sees: true, env: ->(_) { TABLE }, on: :all),
    Column.new(name: "heaptrack", what: "heaptrack, its helper process included in CPU", needs: "heaptrack",
               command: ->(ruby, scratch, _) { ["heaptrack", "--output", "#{scratch}/heaptrack", *ruby] }),
    Column.new(name: "trace", what: "ObjectSpace.trace_object_allocations", prelude: "trace", on: :all),
    Column.new(name: "memory_profiler", what: "MemoryProfiler.report and its text", prelude: "memory_profiler",
               needs: "ruby-memory-profiler", bound: true)
  ].freeze
end
