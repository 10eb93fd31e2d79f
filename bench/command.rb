# frozen_string_literal: true

require "optparse"
require_relative "blocks"
require_relative "collection"
require_relative "columns"
require_relative "record"
require_relative "session"
require_relative "setup"
require_relative "table"
require_relative "workloads"

module Bench
  # `bin/bench`: its words and options.
  class Command
    BANNER = <<~TEXT
      Usage: bin/bench [options]         run every workload in every column and print one table
             bin/bench show FILE.csv     print the table of a record (takes --markdown and --measures)
             bin/bench table [CASE…]     the tracker's table of blocks beside other shapes, round by round (cargo bench); `list` lists cases
             bin/bench criterion [-- ARGS]   the same with criterion (cargo bench); `-- -- FILTER` for some of it
             bin/bench plot [LINES]      how long memintro plot takes for a million lines, beside grep
             bin/bench rack              what the Rack middleware costs a request, beside a call of ps
             bin/bench instructions [--columns A,B] [WORKLOAD…]  what tracking costs in instructions, which no busy machine changes
             bin/bench collection [--runs N] [--columns A,B]   what tracking costs a full collection of Ruby's
             bin/bench forks [ROUNDS [FORKS]]   what tracking costs a fork amid threads that allocate
             bin/bench heap-dump FOLDER [MEGABYTES…]   dumping a heap, beside ObjectSpace.dump_all
             bin/bench heap-read FOLDER [MEGABYTES [LIB]]   reading a dump, beside heapy
             bin/bench introspection [PART…]   what looking inside costs; PART is a file of bench/introspection

    TEXT
    Options = Struct.new(:rounds, :only, :columns, :measures, :markdown, :record, :quick, :install, :limit_s, :scale,
                         :allocator, keyword_init: true)
    MEASURES = { "cpu" => [:cpu_s], "rss" => [:peak_rss_bytes], "wall" => [:wall_s],
                 "latency" => %i[p50_s p99_s paced_p50_s paced_p99_s], "gcs" => %i[minor_gcs major_gcs] }.freeze

    def self.call(arguments)
      new.call(arguments)
    rescue OptionParser::ParseError => e
      warn "bin/bench: #{e.message} (bin/bench --help lists what there is)"
      2
    end

    def initialize
      @options = Options.new(rounds: 5, only: WORKLOADS, columns: COLUMNS, measures: MEASURES.values.flatten,
                             install: true, limit_s: 60, scale: 1.0)
    end

    def call(arguments)
      words = parser.parse(arguments)
      case words.first
      when nil then run
      when "show" then show(words.drop(1))
      when "table" then Blocks.table(words.drop(1), allocator: @options.allocator, quick: @options.quick) ? 0 : 1
      when "criterion" then Blocks.criterion(words.drop(1)) ? 0 : 1
      when "plot" then program("plot/million.rb", words.drop(1))
      when "rack" then program("rack/overhead.rb", words.drop(1))
      when "instructions" then program("instructions.rb", [*of_columns, *words.drop(1)])
      when "collection" then collection
      when "forks" then program("forks/ratios.rb", words.drop(1))
      when "heap-dump", "heap-read" then program("heap/#{words.first.delete_prefix("heap-")}.rb", words.drop(1))
      when "introspection" then introspection(words.drop(1))
      else raise OptionParser::InvalidArgument, words.first
      end
    end

    private

    def run
      quicken if @options.quick
      setup = Setup.new(install: @options.install)
      setup.prepare(@options.only, @options.columns)
      session = Session.new(setup, @options.only, @options.columns, rounds: @options.rounds, scale: @options.scale,
                                                                    limit_s: @options.limit_s)
      runs = session.call
      puts Record.circumstances unless @options.markdown
      print_table(runs)
      session.left_out.each { |name, reason| puts "#{"- " if @options.markdown}#{name} was left out: #{reason}" }
      puts "recorded in #{Record.write(runs).delete_prefix("#{Setup::ROOT}/")}" if @options.record
      failed?(runs) ? 1 : 0
    end

    # Small enough for a test: every part of the harness runs, no figure means anything.
    def quicken
      @options.rounds = 1
      @options.scale = 0.01
      @options.install = false
      @options.only = @options.only.select(&:quick)
    end

    # A peer that fails is a result; Ruby alone or memintro failing is an error.
    def failed?(runs)
      ours = COLUMNS.reject { |column| column.needs.is_a?(String) || column.bound }.map(&:name)
      runs.any? { |run| run.failure && ours.include?(run.column) }
    end

    def show(paths)
      raise OptionParser::MissingArgument, "show FILE.csv" if paths.empty?

      paths.each { |path| print_table(Record.read(path)) }
      0
    end

    # Those that were chosen, as an option of instructions.rb.
    def of_columns
      names = @options.columns.map(&:name) - ["plain"]
      @options.columns.equal?(COLUMNS) ? [] : ["--columns", names.join(",")]
    end

    def collection
      quicken if @options.quick
      columns = @options.columns.equal?(COLUMNS) ? Collection::COLUMNS_TIMED : @options.columns
      setup = Setup.new(install: @options.install)
      puts Collection.new(setup, columns, rounds: @options.rounds, scale: @options.scale,
                                          limit_s: @options.limit_s).call
      0
    end

    def program(file, arguments)
      system(RbConfig.ruby, "-I#{File.join(Setup::ROOT, "lib")}", File.join(__dir__, file), *arguments) ? 0 : 1
    end

    # Each part is a program of its own, so that none finds what another has left in the heap.
    def introspection(names)
      parts = Dir[File.join(__dir__, "introspection", "*.rb")].sort.to_h { |path| [File.basename(path, ".rb"), path] }
      unknown = names - parts.keys
      unless unknown.empty?
        raise OptionParser::InvalidArgument, "#{unknown.join(", ")} (there are #{parts.keys.join(", ")})"
      end

      parts = parts.slice(*names) unless names.empty?
      failed = parts.reject do |name, path|
        puts "#{name}:"
        system(RbConfig.ruby, "-I#{File.join(Setup::ROOT, "lib")}", path)
      end
      failed.empty? ? 0 : 1
    end

    def print_table(runs)
      table = Table.new(runs, measures: @options.measures)
      puts @options.markdown ? table.markdown : table.text
    end

    def parser
      OptionParser.new(BANNER, 34) do |parser|
        choices(parser)
        output(parser)
      end
    end

    def choices(parser)
      parser.on("--runs N", Integer, "rounds of all columns (default 5)") { |n| @options.rounds = positive(n) }
      parser.on("--only WORKLOAD,…", Array, "of #{WORKLOADS.map(&:name).join(", ")}") do |names|
        @options.only = pick(names, WORKLOADS)
      end
      parser.on("--columns COLUMN,…", Array, "of #{COLUMNS.map(&:name).join(", ")}; plain is always run") do |names|
        @options.columns = pick(names | ["plain"], COLUMNS)
      end
      parser.on("--scale FACTOR", Float, "size of the workloads (default 1)") { |x| @options.scale = positive(x) }
      parser.on("--limit SECONDS", Integer, "time limit of memory_profiler (default 60)") do |n|
        @options.limit_s = positive(n)
      end
      parser.on("--allocator NAME", Blocks::ALLOCATORS.keys, "of `table`, in place of glibc's: " \
                                                             "#{Blocks::ALLOCATORS.keys.join(", ")}") do |name|
        @options.allocator = name
      end
      parser.on("--quick", "one round of tiny sizes, as a test of the harness") { @options.quick = true }
      parser.on("--no-setup", "install and build nothing; leave out what is missing") { @options.install = false }
    end

    def output(parser)
      parser.on("--measures MEASURE,…", Array, "of #{MEASURES.keys.join(", ")} (default all)") do |names|
        @options.measures = names.flat_map { |name| MEASURES.fetch(name) { raise OptionParser::InvalidArgument, name } }
      end
      parser.on("--markdown", "print the table as Markdown") { @options.markdown = true }
      parser.on("--record", "keep the runs in bench/record") { @options.record = true }
    end

    def pick(names, all)
      unknown = names - all.map(&:name)
      raise OptionParser::InvalidArgument, unknown.join(", ") unless unknown.empty?

      all.select { |one| names.include?(one.name) }
    end

    def positive(number)
      raise OptionParser::InvalidArgument, number.to_s unless number.positive?

      number
    end
  end
end
