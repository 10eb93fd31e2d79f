# frozen_string_literal: true

# What it costs a running process to be looked at through its control socket: Ruby objects made in it by each command,
# the longest pause of another of its threads, and what its RSS grows by in many snapshots. Run by itself:
# ruby bench/introspection/looking.rb [OBJECTS [LIB]]
#
# The pause is seen by a thread that does nothing but read the clock. What disturbs only adds: the longest pause of the
# calmest round is what looking itself makes. Beside it stands the most processor time that the answering thread had
# between two readings, in any round: no pause that is looking's own work is longer.

require "json"
require "rbconfig"
require "tmpdir"
require_relative "support/rounds"

module Bench
  module Introspection
    # Prints a line for each command: milliseconds that it took, objects, the longest pause.
    module Looking
      ROUNDS = 5
      SNAPSHOTS = 50
      # What looking may cost.
      MOST_OBJECTS = 2_000
      MOST_PAUSE_MS = 20.0

      # What is asked, as the command line has it; the first word of several.
      COMMANDS = {
        "snapshot" => %w[snapshot --json], "histogram" => %w[histogram], "iseqs" => %w[iseqs --by location],
        "top" => %w[top], "top --older-than 1" => %w[top --older-than 1], "report" => %w[report],
        "report --json" => %w[report --json], "diff --no-gc" => %w[diff --for 0.1 --no-gc]
      }.freeze
      # A full collection is the program's own, and stops all its threads.
      COLLECTING = { "diff" => %w[diff --for 0.1] }.freeze

      # The process that is looked at: 500 classes, 20,000 instruction sequences, 5,000 call sites, and as many objects
      # as are asked for.
      TARGET = <<~'RUBY'
        require "memintro"
        Memintro.start
        count = Integer(ARGV.fetch(0))
        classes = Array.new(500) { |i| Object.const_set("Kind#{i}", Class.new) }
        code = Module.new
        10_000.times { |i| code.module_eval("def m#{i}(a) = a.map { |b| b }", "app/#{i % 900}.rb", i + 1) }
        $sites = Array.new(5_000) { |i| code.module_eval("'x' * 300", "app/site#{i}.rb", i + 1) }
        $kept = Array.new(count) { |i| classes[i % 500].new }
        # Arrays of what was made along the way are garbage now, and a collection that is under way is over.
        3.times { GC.start }
        Memintro.listen
        watching = nil
        # Makes no object, and asks nothing that would have this thread give up Ruby's lock by itself: reading a file does.
        watch = lambda do
          task = Thread.list.find { |thread| thread.name == "memintro-socket" }.native_thread_id
          # The kernel's number for the processor time of a thread.
          clock = (~task << 3) | 6
          $longest = [0.0, 0.0]
          last = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          work = Process.clock_gettime(clock)
          while watching
            now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
            worked = Process.clock_gettime(clock)
            $longest[0] = now - last if now - last > $longest[0]
            $longest[1] = worked - work if worked - work > $longest[1]
            last = now
            work = worked
          end
        end
        $stdout.sync = true
        puts "ready"
        while (line = $stdin.gets)
          case line
          when "watch\n" then watching = true and thread = Thread.new(&watch)
          when "rest\n" then watching = false or thread.join
          end
          puts [GC.stat(:total_allocated_objects), Memintro.rss, GC.stat(:heap_live_slots), *$longest].join(" ")
        end
      RUBY

      def self.call(objects, lib, out = $stdout)
        Dir.mktmpdir("mi") do |folder|
          @lib = lib
          @environment = { "MEMINTRO_SOCKET_FOLDER" => folder }
          start(objects)
          out.puts("#{figures[2].to_i} live slots, 500 classes, 20,000 instruction sequences, 5,000 call sites")
          COMMANDS.each { |name, words| out.puts(line(name, words, aims: true)) }
          COLLECTING.each { |name, words| out.puts(line(name, words, aims: false)) }
          out.puts(growth)
        ensure
          Process.kill(:KILL, @pid) if @pid
        end
      end

      def self.start(objects)
        theirs, @input = IO.pipe
        @output, outs = IO.pipe
        @pid = spawn(@environment, RbConfig.ruby, "-I#{@lib}", "-e", TARGET, "--", objects.to_s,
                     in: theirs, out: outs, err: File::NULL)
        Process.detach(@pid)
        [theirs, outs].each(&:close)
        raise "the process that is to be looked at does not start" unless @output.gets
      end

      # Objects made so far, RSS, live slots, and after `watch` and `rest` the longest pause and the most work.
      def self.figures(order = "")
        @input.puts(order)
        @output.gets.split.map(&:to_f)
      end

      # What asking for the figures makes is not the command's.
      def self.line(name, words, aims:)
        rounds = Array.new(ROUNDS) { round(words) }
        objects = rounds.map(&:last).max
        pauses, works = Array.new(ROUNDS) { pause(words) }.transpose
        text = format("%-20s %8.1f ms %9d objects %7.1f ms pause (up to %.1f), %.1f ms work", name,
                      Statistics.median(rounds.map(&:first)), objects, pauses.min, pauses.max, works.max)
        return text unless aims

        aim = "#{MOST_OBJECTS} objects, #{MOST_PAUSE_MS.to_i} ms"
        text + Rounds.verdict(aim, objects <= MOST_OBJECTS && [pauses.min, works.max].max <= MOST_PAUSE_MS)
      end

      # Milliseconds that the command takes, its own time included, and objects.
      def self.round(words)
        asking = [figures, figures].map(&:first).reduce { |one, two| two - one }
        before = figures.first
        begun = Rounds.now
        memintro(*words)
        took = Rounds.now - begun
        [took * 1e3, (figures.first - before - asking).to_i]
      end

      # Milliseconds. Asked apart from the others: a thread that computes makes a command take longer.
      def self.pause(words)
        figures("watch")
        memintro(*words)
        figures("rest").last(2).map { |seconds| seconds * 1e3 }
      end

      def self.growth
        memintro("snapshot", "--json")
        before = figures[1]
        SNAPSHOTS.times { memintro("snapshot", "--json") }
        format("%d snapshots: RSS %+.1f MiB", SNAPSHOTS, (figures[1] - before) / 1_048_576)
      end

      def self.memintro(command, *words)
        exe = File.join(@lib, "../exe/memintro")
        words = [RbConfig.ruby, exe, command, *words, @pid.to_s]
        system(@environment, *words, out: File::NULL) or raise "#{command} failed"
      end
    end
  end
end

if $PROGRAM_NAME == __FILE__
  Bench::Introspection::Looking.call(Integer(ARGV.fetch(0, "6000000")),
                                     ARGV.fetch(1, File.expand_path("../../lib", __dir__)))
end
