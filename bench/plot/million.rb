# frozen_string_literal: true

# How long `memintro plot` takes for a million lines of both formats, against `grep -c` over the same file, which does
# nothing but look for a word: wall time, the best of rounds that take turns. `bin/bench plot`.

require "rbconfig"
require "tmpdir"
require_relative "../introspection/support/rounds"

LINES = Integer(ARGV.fetch(0, 1_000_000))
ROUNDS = 5
# For a million lines.
MOST_SECONDS = 2
EXE = File.expand_path("../../exe/memintro", __dir__)

def write(path)
  begun = Time.utc(2026, 1, 1, 12)
  File.open(path, "w") do |file|
    LINES.times do |at|
      time = begun + (at / 100.0)
      pid = 100 + (at % 4)
      rss = 150 + (at / 10_000.0)
      file << "I, [#{time.strftime('%Y-%m-%dT%H:%M:%S.%6N')} ##{pid}]  INFO -- : "
      file << if at.odd?
                "MEMORY[#{pid}]: time: #{time.strftime('%Y-%m-%d %H:%M:%S +0000')} rss: #{rss.round(1)} MB, " \
                  "live_objects: 1.2 Million\n"
              else
                "MEMORY method=GET path=/posts/#{at} status=200 duration_ms=12.3 rss_bytes=#{(rss * 1_048_576).to_i} " \
                  "rss_delta_bytes=4096 malloc_bytes=12345 malloc_calls=123 freed_bytes=1234 process_objects=1234 " \
                  "process_gc_ms=1.5 in_flight=3 pid=#{pid} tid=123 request_id=abc-#{at}\n"
              end
    end
  end
end

def seconds(*command)
  begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  # Not to the null device: grep looks no further than the first line then.
  IO.popen(command, err: File::NULL, &:read)
  $?.success? || abort("#{command.join(' ')} failed")
  Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
end

Dir.mktmpdir("memintro-bench") do |folder|
  log = File.join(folder, "memory.log")
  write(log)
  commands = { "grep -c MEMORY" => ["grep", "-c", "MEMORY", log],
               "memintro plot -o memory.svg" => [RbConfig.ruby, EXE, "plot", log, "-o", "#{folder}/memory.svg"],
               "memintro plot -o memory.png" => [RbConfig.ruby, EXE, "plot", log, "-o", "#{folder}/memory.png"] }
  best = commands.transform_values { Float::INFINITY }
  ROUNDS.times { commands.each { |name, command| best[name] = [best[name], seconds(*command)].min } }
  puts format("%d lines, %.0f MB", LINES, File.size(log) / 1e6)
  best.each do |name, took|
    aimed = LINES == 1_000_000 && name.start_with?("memintro")
    aim = Bench::Introspection::Rounds.verdict("below #{MOST_SECONDS} s", took < MOST_SECONDS) if aimed
    puts format("%-28s %6.2f s  %5.1fx%s", name, took, took / best.values.first, aim)
  end
end
