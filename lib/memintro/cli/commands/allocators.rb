# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "../command"
require_relative "../launch"
require_relative "../../support/allocators"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro allocators -- CMD`: compares allocators by the memory and time that a command takes with each.
    class Allocators < Command
      # The name of the command.
      NAME = "allocators"
      # Its purpose, for the list of commands.
      SUMMARY = "run a command once per allocator, and compare time, CPU and RSS"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro allocators [options] -- CMD [ARGUMENTS]

        Runs CMD in turn with each of these allocators that is installed here: glibc, glibc with MALLOC_ARENA_MAX=2,
        #{Memintro::Allocators::NAMES}. Shows the medians of time, CPU time of CMD and the processes that
        it waits for, peak RSS and the last RSS of CMD's own process, and which allocator was loaded. One more run of
        each is tracked and not timed: live bytes are what CMD's own process has in use when it ends. The output of
        CMD is discarded.
      TEXT
      # Allocators besides glibc, by name.
      OTHERS = Memintro::Allocators::ALL.transform_keys(&:to_s).freeze
      # Folders that are searched for them.
      FOLDERS = %w[/usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib].freeze
      # Seconds between two readings of a running CMD.
      LOOK_SECONDS = 0.01
      # Columns of the table.
      HEAD = "allocator            time      CPU   peak RSS  RSS at the end  live bytes  answered"
      # One run of one allocator.
      Outcome = Struct.new(:seconds, :cpu, :peak, :last, :answered, :failed)
      private_constant :Outcome

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:")
          parser.on("--rounds N", Integer, "how many times each; default 1") { |count| @rounds = count }
          parser.on("--no-live", "without the run that counts live bytes") { @no_live = true }
        end
      end

      # @param command [Array<String>]
      # @return [Integer]
      def run(command)
        raise UsageError, "no command to run: memintro allocators [options] -- CMD" if command.empty?
        raise UsageError, "--rounds is #{@rounds}; it must be a number from 1" if @rounds && @rounds < 1

        outcomes = Hash.new { |all, name| all[name] = [] }
        (@rounds || 1).times { environments.each { |name, env| outcomes[name] << once(env, command) } }
        show(outcomes, @no_live ? {} : environments.transform_values { |env| live_bytes(env, command) })
        outcomes.values.flatten.any?(&:failed) ? 1 : 0
      end

      private

      def parse(parser, argv)
        parse_before_command(parser, argv) { |rest| "write CMD after --: memintro allocators -- #{rest.join(' ')}" }
      end

      def environments
        @environments ||= { "glibc" => {}, "glibc, 2 arenas" => { "MALLOC_ARENA_MAX" => "2" } }.merge(
          OTHERS.transform_values { |other| found(other) }.compact.transform_values { |path| { "LD_PRELOAD" => path } }
        )
      end

      def found(other)
        files = other.endings.map { |ending| other.library + ending }
        FOLDERS.product(files).flat_map { |folder, file| Dir.glob(File.join(folder, file)) }.first
      end

      def once(env, command)
        before = [now, cpu]
        pid = start(env, command)
        peak, last, answered = follow(pid)
        Outcome.new(now - before[0], cpu - before[1], peak, last, answered, !$?.success?)
      end

      def start(env, command)
        own = { "LD_PRELOAD" => nil, "MALLOC_ARENA_MAX" => nil }.merge(env)
        Process.spawn(own, [command.first, command.first], *command.drop(1), %i[out err] => File::NULL)
      rescue Errno::ENOENT
        raise Failure.new("#{command.first}: command not found", 127)
      rescue Errno::EACCES, Errno::ENOEXEC, Errno::EISDIR
        raise Failure.new("#{command.first}: cannot be run", 126)
      end

      # Figures of CMD's own process, at its end; nil if it is not Ruby, or ended without a report.
      def live_bytes(env, command)
        Dir.mktmpdir("memintro-") do |folder|
          launch = Launch.new(report: File.join(folder, "%p.json"), format: :json)
          tracked = launch.variables
          preload = Paths.before(launch.hook, env["LD_PRELOAD"], ":")
          pid = start({ **env, **tracked, "LD_PRELOAD" => preload }, command)
          Process.wait(pid)
          JSON.parse(File.read(File.join(folder, "#{pid}.json"))).fetch("totals").fetch("live_bytes")
        end
      rescue SystemCallError, JSON::ParserError, KeyError
        nil
      end

      def follow(pid)
        peak = last = 0
        answered = nil
        until Process.wait(pid, Process::WNOHANG)
          figures = status(pid)
          peak = [peak, figures["VmHWM"].to_i].max
          last = figures["VmRSS"] || last
          answered = allocator(pid) || answered
          sleep(LOOK_SECONDS)
        end
        [peak * 1024, last * 1024, answered]
      end

      def status(pid)
        found = File.binread("/proc/#{pid}/status").scan(/^(VmHWM|VmRSS):\s+(\d+)/)
        found.to_h { |name, kib| [name, Integer(kib, 10)] }
      rescue SystemCallError
        {} # it has just ended
      end

      def allocator(pid)
        maps = File.binread("/proc/#{pid}/maps")
        OTHERS.keys.find { |name| maps.include?("/#{OTHERS[name].library}") } || ("glibc" if maps.include?("/libc"))
      rescue SystemCallError
        nil # it has just ended
      end

      def show(outcomes, live)
        @out.puts(HEAD)
        outcomes.each do |name, list|
          seconds, spent, peak, last = %i[seconds cpu peak last].map { |figure| median(list.map(&figure)) }
          @out.puts(format("%-15<name>s %6.2<seconds>f s %6.2<cpu>f s %10<peak>s %15<last>s %11<live>s  %<answered>s",
                           name: name, seconds: seconds, cpu: spent, peak: Units.bytes(peak), last: Units.bytes(last),
                           live: live[name] ? Units.bytes(live[name]) : "-", answered: answer(list)))
        end
        @out.puts("Live bytes are known only for Ruby processes that end by themselves.") if live.value?(nil)
        missing = OTHERS.keys - outcomes.keys
        @out.puts("Not installed: #{missing.join(', ')}.") unless missing.empty?
      end

      def answer(list)
        seen = list.last.answered || "not seen: CMD ended too soon"
        list.any?(&:failed) ? "#{seen}, CMD failed" : seen
      end

      def median(values)
        values.sort[values.size / 2]
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def cpu
        times = Process.times
        times.cutime + times.cstime
      end
    end
  end
end
