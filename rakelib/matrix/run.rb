# frozen_string_literal: true

require "set"
require_relative "../../ext/memintro/cargo_build"
require_relative "debian_root"
require_relative "ruby_entry"
require_relative "ruby_home"
require_relative "session"
require_relative "suites"
require_relative "summary"

# Runs the specs on every supported Ruby; `rake matrix` is its only user.
module Matrix
  # Sets up each Ruby, runs its suites and prints the results, one Ruby after the other.
  class Run
    # The short run needs each of these; the others are needed by specs of the long run.
    SMOKE_PACKAGES = %w[build specs].freeze
    ALL_PACKAGES = %w[build specs allocators programs].freeze

    # @param folder [String] where the roots are kept
    # @param checkout [String] what is tested
    def initialize(folder:, checkout:)
      @folder = folder
      @checkout = checkout
      @releases = Set.new
      FileUtils.mkdir_p(folder)
    end

    # Prints the table, and aborts if a suite failed. If the machine cannot do the short run, that is skipped with a
    # message.
    #
    # @param names [Array<String>] of Rubies; none for all
    def call(names, smoke: false)
      reason = DebianRoot.impossible
      return puts("matrix: skipped: #{reason}") if reason && smoke
      raise Failed, reason if reason

      entries = RubyEntry.named(names)
      entries = entries.select(&:smoke?) if smoke && names.empty?
      outcomes = entries.flat_map { |entry| outcomes(entry, smoke) }
      summary = Summary.new(outcomes)
      puts nil, summary
      abort "matrix: not everything passed" unless summary.success?
    end

    private

    # A Ruby that cannot be set up becomes a failed row; the others are still tested.
    def outcomes(entry, smoke)
      say entry, "setting up"
      root = DebianRoot.new(entry.debian, folder: @folder, log: File.join(@folder, "#{entry.debian}.log"))
      root.prepare(*(smoke ? SMOKE_PACKAGES : ALL_PACKAGES))
      home = RubyHome.new(entry, root)
      home.prepare
      say entry, home.description
      run_suites(entry, home, smoke)
    rescue Failed => e
      [Outcome.new(ruby: entry.name, allocator: "-", suite: "set-up", passed: 0, failed: 1, skipped: 0,
                   notes: [e.message])]
    end

    def run_suites(entry, home, smoke)
      session = Session.new(home, folder: @folder, checkout: @checkout, crates: (crates(entry) if smoke))
      suites = Matrix.suites(smoke: smoke, again: !@releases.add?(entry.debian), names: chosen_suites)
      session.run(suites) do |outcome|
        say entry, "#{outcome.suite}, #{outcome.allocator}: #{outcome.passed} passed, #{outcome.failed} failed, " \
                   "#{outcome.skipped} skipped"
      end
    end

    def chosen_suites = ENV.fetch("MEMINTRO_MATRIX_SUITES", "").split(",").map(&:strip)

    # The short run compiles what differs from one Ruby to the next; all else is taken from the checkout's own build.
    # If another task builds the checkout meanwhile, cargo waits for it.
    def crates(entry)
      build = CargoBuild.new(root: @checkout)
      log = File.join(@folder, "checkout.log")
      built = system(build.environment, *build.command, in: File::NULL, out: log, err: %i[child out])
      raise Failed, "#{entry.name}: the checkout does not build; see #{log}" unless built

      build.target_folder
    end

    def say(entry, text) = puts("[#{Time.now.strftime('%H:%M:%S')}] #{entry.name}: #{text}")
  end
end
