# frozen_string_literal: true

require "set"
require_relative "../../ext/memintro/cargo_build"
require_relative "debian_root"
require_relative "installed_ruby"
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
    # @param names [Array<String>] of Rubies in rubies.yml, and prefixes of installed ones; none for all of rubies.yml
    def call(names, smoke: false)
      prefixes, listed = names.partition { |name| InstalledRuby.prefix?(name) }
      outcomes = prefixes.flat_map { |prefix| outcomes_of_installed(InstalledRuby.new(prefix, folder: @folder), smoke) }
      if prefixes.empty? || listed.any?
        reason = DebianRoot.impossible
        return puts("matrix: skipped: #{reason}") if reason && smoke
        raise Failed, reason if reason

        outcomes += entries(listed, smoke).flat_map { |entry| outcomes(entry, smoke) }
      end
      summary = Summary.new(outcomes)
      puts nil, summary
      abort "matrix: not everything passed" unless summary.success?
    end

    private

    def entries(names, smoke)
      entries = RubyEntry.named(names)
      smoke && names.empty? ? entries.select(&:smoke?) : entries
    end

    def outcomes_of_installed(ruby, smoke)
      ruby.prepare
      say ruby, ruby.description
      run_suites(ruby, ruby, smoke, release: :here)
    end

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

    def run_suites(entry, home, smoke, release: entry.debian)
      session = Session.new(home, folder: @folder, checkout: @checkout, crates: (crates(entry) if smoke))
      suites = Matrix.suites(smoke: smoke, again: !@releases.add?(release), names: chosen_suites)
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
