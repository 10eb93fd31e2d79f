# frozen_string_literal: true

# What Memintro.account costs a process of 0.1, 1 and 4 GiB: for how long it stands still, how long the caller waits,
# and what pages that it writes meanwhile cost. Run by itself: ruby -Ilib bench/introspection/account.rb [GIBIBYTES]

require "fiddle"
require "json"
require_relative "support/rounds"

module Bench
  module Introspection
    # Each process is a new one, because memory that was freed stays in it.
    module Account
      ROUNDS = 5
      # Written while the copy counts.
      WRITTEN = 64 << 20
      PAGE = 4096
      KINDS = { "blocks of C" => :blocks, "mixed blocks" => :mixed, "live objects" => :objects,
                "freed strings" => :fragments }.freeze

      def self.call(sizes, out = $stdout)
        sizes.product(KINDS.keys) do |gibibytes, name|
          found = JSON.parse(IO.popen([RbConfig.ruby, "-I#{File.expand_path('../../lib', __dir__)}", __FILE__, "--one",
                                       KINDS[name].to_s, gibibytes.to_s], &:read), symbolize_names: true)
          out.puts(line(name, gibibytes, found))
        end
      end

      def self.line(name, gibibytes, found)
        most = (60 * [gibibytes, 1].max) + (found[:objects] * 15e-6)
        text = format("%4.1f GiB %-14s RSS %5d MiB  stands still %5.1f ms (most %5.1f)  waits %6.0f ms  without " \
                      "Ruby's heap %4.0f ms  %5.0f ns a page written meanwhile (%.0f otherwise)", gibibytes, name,
                      found[:rss] >> 20, *found.values_at(:pause, :most_pause, :wait, :wait_without, :page_meanwhile,
                                                          :page))
        aims = [Rounds.verdict(format("at most %.0f ms", most), found[:pause] <= most)]
        aims << Rounds.verdict("at most 70 ms", found[:wait_without] <= 70) if gibibytes <= 1
        text + aims.join
      end

      # In the process that is measured.
      def self.one(kind, gibibytes)
        require "memintro"
        kept = send(kind, (gibibytes * (1 << 30)).to_i)
        2.times { Memintro.account }
        accounts = Array.new(ROUNDS) { timed { Memintro.account } }
        # The copy before has ended then.
        without = Array.new(ROUNDS) { sleep(0.1) && timed { Memintro.account(ruby: false) } }
        pauses = accounts.map { |account, _| account.pause_ms }
        puts JSON.generate(rss: accounts.last[0].rss, objects: GC.stat(:heap_live_slots), kept: kept.size,
                           pause: Statistics.median(pauses), most_pause: pauses.max,
                           wait: Statistics.median(accounts.map(&:last)),
                           wait_without: Statistics.median(without.map(&:last)), **written)
      end

      # Nanoseconds for a page that is written first while the copy has it too, and for one that no copy has.
      def self.written
        memory = Fiddle::Pointer.malloc(WRITTEN, Fiddle::RUBY_FREE)
        write(memory)
        page = write(memory)
        meanwhile = Array.new(ROUNDS) do
          waiter = Thread.new { Memintro.account }
          # The other thread has the lock until its copy is made.
          Thread.pass until waiter.stop? || !waiter.alive?
          write(memory).tap { waiter.join }
        end
        { page: page, page_meanwhile: meanwhile.max }
      end

      def self.write(memory)
        timed { 0.step(WRITTEN - 1, PAGE) { |place| memory[place] = 1 } }.last * 1e6 / (WRITTEN / PAGE)
      end

      # @return [Array] the answer, and milliseconds
      def self.timed
        begun = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
        answer = yield
        [answer, (::Process.clock_gettime(::Process::CLOCK_MONOTONIC) - begun) * 1e3]
      end

      def self.blocks(bytes)
        Array.new(bytes / 1040) do
          block = Fiddle.malloc(1024)
          Fiddle::Pointer.new(block)[0] = 1
          block
        end
      end

      # As in programs: of any size, so that no block says where the next one is.
      def self.mixed(bytes)
        random = Random.new(1)
        Array.new(bytes / 1040) do
          block = Fiddle.malloc(24 + random.rand(2000))
          Fiddle::Pointer.new(block)[0] = 1
          block
        end
      end

      def self.objects(bytes)
        Array.new(bytes / 48) { Object.new }
      end

      def self.fragments(bytes)
        kept = Array.new(bytes / 600) { |n| "x" * (100 + (n * 37 % 900)) }
        kept.each_index { |n| kept[n] = nil unless (n % 10).zero? }
        GC.start
        kept
      end
    end
  end
end

if ARGV.first == "--one"
  Bench::Introspection::Account.one(ARGV.fetch(1).to_sym, Float(ARGV.fetch(2)))
else
  Bench::Introspection::Account.call(ARGV.empty? ? [0.1, 1.0, 4.0] : ARGV.map { |size| Float(size) })
end
