# frozen_string_literal: true

require "tmpdir"
require_relative "musl_rust"

module Matrix
  # Tests musl and macOS without machines of theirs. Crates without Ruby and the hook are linked with musl and their
  # tests run here, because Linux runs programs of either library; `memintro-tool` must draw the same plots as this
  # machine's own tool. For the other crates, the compiler only checks whether it accepts them; see musl.rb for more.
  class OtherTargets
    # Built like the tests and linked statically, because glibc loads none of it.
    TESTED = %w[memintro-abi memintro-elf memintro-tracker memintro-analysis memintro-tool].freeze
    # For macOS, the crates that need neither glibc nor Ruby's headers of that platform.
    CHECKED = { MuslRust::TARGET => %w[memintro-hook memintro],
                "aarch64-apple-darwin" => %w[memintro-abi memintro-analysis memintro-tool],
                "x86_64-apple-darwin" => %w[memintro-abi memintro-analysis memintro-tool] }.freeze
    FORMATS = %w[svg png html text].freeze

    # @param folder [String] of the matrix
    # @param checkout [String] built
    def initialize(folder:, checkout:)
      @checkout = checkout
      @log = File.join(folder, "other-targets.log")
      @root = DebianRoot.new("trixie", name: "trixie-aarch64", folder: folder, log: @log)
      @rust = MuslRust.new(@root, checkout: checkout)
    end

    # Prints each target with what was tested and what was accepted.
    #
    # @raise [Failed] where something is not
    def call
      @root.prepare("build")
      @root.install("ruby-dev", "ruby")
      @rust.prepare
      failed = TESTED.reject { |crate| tests_pass?(crate) }
      failed << "drawing" unless draws_the_same?
      CHECKED.each { |target, crates| failed.concat(crates.reject { |crate| accepted?(target, crate) }) }
      raise Failed, "failed: #{failed.join(', ')}; see #{@log}" if failed.any?
    end

    private

    def say(target, subject, outcome) = puts("#{target}: #{subject}: #{outcome}")

    def tests_pass?(crate)
      Dir.mktmpdir do |folder|
        out = File.join(folder, "out")
        status = @rust.cargo("test", "--no-fail-fast", "--tests", "--package", crate, out: out)
        text = File.read(out)
        File.write(@log, text, mode: "a")
        passed = text.scan(/^test result: \w+\. (\d+) passed/).sum { |(number)| number.to_i }
        say(MuslRust::TARGET, crate, status.success? ? "linked, #{passed} tests passed" : "FAILED")
        # The contract's only test is the one of its C header.
        status.success? && passed.positive?
      end
    end

    # An image of every format must equal the one of this machine's tool, byte for byte.
    def draws_the_same?
      outcome = @rust.cargo("build", "--package", "memintro-tool").success? ? different_pictures : ["not built"]
      say(MuslRust::TARGET, "memintro-tool", if outcome.empty?
                                               "static, draws #{FORMATS.join(', ')} to the same bytes"
                                             else
                                               "FAILED: #{outcome.join(', ')}"
                                             end)
      outcome.empty?
    end

    def different_pictures
      tools = { musl: @rust.product("memintro-tool"), own: File.join(@checkout, "lib/memintro/memintro-tool") }
      return ["is not static"] if IO.popen(["readelf", "--dynamic", "--segments", tools[:musl]], &:read)
                                    .match?(/NEEDED|INTERP/)

      Dir.mktmpdir do |folder|
        log = File.join(folder, "memory.log")
        File.write(log, memory_lines)
        FORMATS.reject do |format|
          musl, own = tools.map { |name, tool| picture(tool, format, File.join(folder, "#{name}.#{format}"), log) }
          musl && musl == own
        end
      end
    end

    def picture(tool, format, into, log)
      command = ["timeout", "600", tool, "plot", format, into, "0", log]
      File.binread(into) if system(*command, in: File::NULL, out: [@log, "a"], err: [@log, "a"])
    end

    # A log of two processes that grow for an hour.
    def memory_lines
      Array.new(3_600) do |second|
        format("MEMORY[%<pid>d]: time: %<time>s rss: %<rss>.1f MB, live_objects: %<objects>.1f Million\n",
               pid: 100 + (second % 2), time: (Time.utc(2026, 1, 1) + second).strftime("%F %T +0000"),
               rss: 100 + (second * 0.1) + (second * 7 % 13), objects: 1 + (second * 0.001))
      end.join
    end

    def accepted?(target, crate)
      accepted = @rust.cargo("check", "--package", crate, target: target).success?
      say(target, crate, accepted ? "the compiler accepts it" : "REFUSED")
      accepted
    end
  end
end
