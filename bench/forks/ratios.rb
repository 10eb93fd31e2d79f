# frozen_string_literal: true

# What tracking costs a fork of a program whose threads allocate and use streams (streams.c), while others want all
# processors.
# `bin/bench forks [ROUNDS [FORKS]]`. Needs gcc. Each round runs every column once, in an order of its own; a figure is
# the median of the rounds' ratios to the program alone.

require "etc"
require "rbconfig"
require "tmpdir"
require_relative "../setup"
require_relative "../statistics"

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
FIGURES = { "median" => 0.5, "nine of ten within" => 0.9 }.freeze
rounds, forks = [ARGV[0] || 9, ARGV[1] || 200].map { |word| Integer(word) }

Dir.mktmpdir do |folder|
  program = File.join(folder, "streams")
  headers = %w[spec/fixtures/programs crates/abi/include].map { |path| "-I#{File.join(ROOT, path)}" }
  flags = %w[-std=gnu11 -O1 -fno-builtin -rdynamic -pthread]
  system("gcc", *flags, *headers, "-o", program, File.join(__dir__, "streams.c"), "-ldl") or
    abort "streams.c does not compile"
  spinning = "Process.kill(0, #{Process.pid}) && 100_000.times {} while true"
  spinners = Array.new(Etc.nprocessors) { spawn(RbConfig.ruby, "--disable-gems", "-e", spinning) }
  times = Array.new(rounds) do
    COLUMNS.to_a.shuffle.to_h do |name, env|
      list = IO.popen(env, [program, forks.to_s], &:read).split.map { |word| Float(word) }.sort
      abort "#{name}: the program failed" unless list.size == forks
      [name, [*FIGURES.values.map { |share| list[(list.size * share).floor] }, list.sum / list.size]]
    end
  end
  spinners.each { |pid| Process.kill(:KILL, pid) }
  puts format("%-20s", "a fork") + COLUMNS.keys.map { |name| format("%14s", name) }.join
  [*FIGURES.keys, "mean"].each_with_index do |figure, index|
    plain, *others = COLUMNS.keys.map { |name| times.map { |round| round[name][index] } }
    ratios = others.map { |all| Bench::Statistics.median(all.zip(plain).map { |one, base| one / base }) }
    puts format("%-20s%14s", figure, format("%.2f ms", Bench::Statistics.median(plain))) +
         ratios.map { |ratio| format("%14s", format("%.1fx", ratio)) }.join
  end
end
