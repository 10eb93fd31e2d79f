# frozen_string_literal: true

# What tracking costs a fork of a program whose threads allocate and use streams (streams.c), while others want all
# processors.
# `bin/bench forks [ROUNDS [FORKS]]`. Needs gcc. Each round runs every column once, in an order of its own; a figure is
# of all forks of a column, in proportion to those of the program alone. Few forks take most of the time: they wait for
# a stream that a thread without a processor holds. So a mean of less than some thousand forks varies twofold.

require "etc"
require "rbconfig"
require "tmpdir"
require_relative "../setup"

ROOT = Bench::Setup::ROOT
HOOK = File.join(ROOT, "lib/memintro/libmemintro_hook.so")
PRELOADED = { "LD_PRELOAD" => HOOK, "MEMINTRO_NATIVE_CHILDREN" => "1" }.freeze
COLUMNS = {
  "plain" => {}, "again" => {},
  "full" => { **PRELOADED, "MEMINTRO_MODE" => "full" },
  "live" => { "MEMINTRO_HOOK" => HOOK, "MEMINTRO_LIVE" => "full" },
  "sampled" => { **PRELOADED, "MEMINTRO_MODE" => "sampled" },
  "live sampled" => { "MEMINTRO_HOOK" => HOOK, "MEMINTRO_LIVE" => "sampled" }
}.freeze
FIGURES = {
  "median" => ->(times) { times[times.size / 2] },
  "nine of ten within" => ->(times) { times[times.size * 9 / 10] },
  "mean" => ->(times) { times.sum / times.size }
}.freeze
rounds, forks = [ARGV[0] || 9, ARGV[1] || 200].map { |word| Integer(word) }

Dir.mktmpdir do |folder|
  program = File.join(folder, "streams")
  headers = %w[spec/fixtures/programs crates/abi/include].map { |path| "-I#{File.join(ROOT, path)}" }
  flags = %w[-std=gnu11 -O1 -fno-builtin -rdynamic -pthread]
  system("gcc", *flags, *headers, "-o", program, File.join(__dir__, "streams.c"), "-ldl") or
    abort "streams.c does not compile"
  spinning = "Process.kill(0, #{Process.pid}) && 100_000.times {} while true"
  spinners = Array.new(Etc.nprocessors) { spawn(RbConfig.ruby, "--disable-gems", "-e", spinning) }
  times = Hash.new { |all, name| all[name] = [] }
  rounds.times do
    COLUMNS.to_a.shuffle.each do |name, env|
      list = IO.popen(env, [program, forks.to_s], &:read).split.map { |word| Float(word) }
      abort "#{name}: the program failed" unless list.size == forks
      times[name].concat(list)
    end
  end
  spinners.each { |pid| Process.kill(:KILL, pid) }
  puts format("%-20s", "a fork") + COLUMNS.keys.map { |name| format("%14s", name) }.join
  FIGURES.each do |figure, of|
    plain, *others = COLUMNS.keys.map { |name| of.call(times[name].sort) }
    puts format("%-20s%14s", figure, format("%.2f ms", plain)) +
         others.map { |one| format("%14s", format("%.1fx", one / plain)) }.join
  end
end
