# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require_relative "../spec/failed_once"

module Matrix
  # The result of one suite. counts are numbers of examples; notes say why examples failed or were skipped.
  Outcome = Struct.new(:ruby, :allocator, :suite, :passed, :failed, :skipped, :notes, keyword_init: true)

  # Tests one Ruby from the beginning: copies the checkout, builds and installs the gem from the copy, and runs the
  # specs there against the libraries that were installed.
  class Session
    CHECKOUT = "/opt/matrix/checkout"
    RESULTS = "/opt/matrix/results"
    # Against hangs alone: minutes for the specs, the longest suite, on a busy machine.
    MOST_MINUTES = 55
    TARGET = "/opt/matrix/target"
    CRATES = "/opt/matrix/crates"

    attr_reader :home, :folder

    # @param home [RubyHome]
    # @param folder [String] of the matrix
    # @param checkout [String]
    # @param crates [String] a target folder with others' crates, which are not compiled again; nil: all are
    def initialize(home, folder:, checkout:, crates: nil)
      @home = home
      @crates = crates
      @folder = File.join(folder, "rubies", home.entry.name)
      @checkout = checkout
      %w[checkout results target].each { |name| FileUtils.mkdir_p(File.join(@folder, name)) }
    end

    # Yields each outcome when it is known.
    #
    # @return [Array<Outcome>]
    def run(suites, &progress)
      copy_checkout
      FileUtils.rm_f(Dir[File.join(folder, "results", "*")])
      installed = run_command("gem install", "bash", "-ec", INSTALL, env: crates_environment).tap(&progress)
      return [installed] if installed.failed.positive?

      demo = run_demo.tap(&progress)
      [installed, demo] + suites.map { |suite| run_suite(suite).tap(&progress) }
    end

    private

    # The demo's program calls malloc through fiddle.
    def run_demo
      return run_command("demo", "bin/demo", "--built", env: compiling) unless home.missing_libraries.include?("fiddle")

      Outcome.new(ruby: home.entry.name, allocator: "glibc", suite: "demo", passed: 0, failed: 0, skipped: 1,
                  notes: ["skipped: this Ruby has no fiddle"])
    end

    # All files that git tracks or would add, or those of one commit (MEMINTRO_MATRIX_REVISION). Built files stay with
    # the Ruby that they were built for.
    def copy_checkout
      copy = File.join(folder, "checkout")
      (Dir.children(copy) - %w[tmp]).each { |name| FileUtils.rm_rf(File.join(copy, name)) }
      revision = ENV.fetch("MEMINTRO_MATRIX_REVISION", "")
      revision.empty? ? copy_files(copy) : copy_commit(revision, copy)
    end

    def copy_files(copy)
      names = IO.popen(%w[git ls-files -co --exclude-standard -z], chdir: @checkout, &:read).split("\0")
      names.each do |name|
        from = File.join(@checkout, name)
        next unless File.file?(from)

        FileUtils.mkdir_p(File.dirname(File.join(copy, name)))
        FileUtils.cp(from, File.join(copy, name), preserve: true)
      rescue Errno::ENOENT
        # A build beside this one writes files under other names first, and renames them.
        raise if File.exist?(from)
      end
    end

    def copy_commit(revision, copy)
      statuses = Open3.pipeline(["git", "archive", revision], ["tar", "-x", "-C", copy], chdir: @checkout)
      raise Failed, "there is no commit #{revision}" unless statuses.all?(&:success?)
    end

    INSTALL = <<~'SHELL'
      rm -rf "$GEM_HOME" /tmp/matrix-gem; mkdir -p "$GEM_HOME" /tmp/matrix-gem
      gem build memintro.gemspec --output /tmp/matrix-gem/memintro.gem
      PATH=$PWD/spec/support/with_crates:$PATH gem install --local --no-document /tmp/matrix-gem/memintro.gem
      libraries=$(ruby -e 'puts Gem::Specification.find_by_name("memintro").full_gem_path')/lib/memintro
      cp "$libraries"/*.so "$libraries"/memintro-tool lib/memintro/
      cd /; unset RUBYLIB
      ruby -rmemintro -e 'Memintro.start; a = "x" * 5_000_000; exit(Memintro["-e:1"].live_bytes >= 5_000_000)'
    SHELL
    private_constant :INSTALL

    # A command counts as a suite of one example.
    def run_command(suite, *command, env: {})
      file = log(suite.tr(" ", "-"))
      status = inside(*command, out: file, env: env)
      note = status.success? ? [] : ["see #{file}", *File.readlines(file).last(3).map(&:strip)]
      Outcome.new(ruby: home.entry.name, allocator: "glibc", suite: suite, passed: status.success? ? 1 : 0,
                  failed: status.success? ? 0 : 1, skipped: 0, notes: note)
    end

    # Cargo treats a crate as another one if its sources are at another path. The short run compiles the extension
    # without optimizations, in 7 CPU seconds instead of 40. The specs take 9 more then. With the first level of
    # optimization, compiling takes 24.
    def crates_environment
      return {} unless @crates

      { "MEMINTRO_SPEC_CRATES" => home.root.seen_at(@crates, CRATES), "CARGO_HOME" => DebianRoot.cargo_home,
        "MEMINTRO_SPEC_OPT_LEVEL" => "0",
        "MEMINTRO_SPEC_CHECKOUT" => (seen_at("checkout", CHECKOUT) if runs_there?) }
    end

    # Whether the glibc inside is as new as this machine's, which the hook and the tool were linked with.
    def runs_there?
      command = %w[getconf GNU_LIBC_VERSION]
      here, there = [IO.popen(command, &:read), home.root.output(*command)].map { |text| text[/[\d.]+/] }
      Gem::Version.new(here) <= Gem::Version.new(there)
    end

    # Makes programs run compiled, if this Ruby has a compiler.
    def compiling = home.entry.yjit? ? { "RUBY_YJIT_ENABLE" => "1" } : {}

    # What failed is run once more, and if that passes, it is named and has not failed (FailedOnce).
    def run_suite(suite)
      name = "#{suite.name.tr(' ', '-')}-#{suite.allocator}"
      first = outcome(suite, name, rspec(suite, name, *suite.arguments))
      failed = failed_examples(name)
      return first if first.failed.zero? || failed.size < first.failed || failed.any? { |example| race?(example) }

      options = suite.arguments.reject { |argument| argument.start_with?("spec/") }
      ids = failed.map { |example| example.fetch("id") }
      again = outcome(suite, "#{name}-again", rspec(suite, "#{name}-again", *options, *ids))
      return first unless again.failed.zero? && again.passed == failed.size

      FailedOnce.note(ids, File.read(log(name)))
      passed_again(first, failed)
    end

    def race?(example) = FailedOnce.race?(File.join(@checkout, example.fetch("file_path")))

    def passed_again(first, failed)
      once = failed.map { |example| "failed once, passed when run again: #{example['full_description']}" }
      notes = first.notes.grep_v(/\A(see|failed:) /) + once
      Outcome.new(**first.to_h, passed: first.passed + failed.size, failed: 0, notes: notes)
    end

    def failed_examples(name)
      report(name).fetch("examples").select { |example| example.fetch("status") == "failed" }
    rescue SystemCallError, JSON::ParserError
      []
    end

    def report(name) = JSON.parse(File.read(File.join(folder, "results", "#{name}.json")))

    def rspec(suite, name, *arguments)
      env = { "MEMINTRO_SPEC_ALLOCATOR" => suite.allocator, "SPEC_RECORDS" => suite.records,
              **(suite.jit ? compiling : {}) }
      json = "#{seen_at('results', RESULTS)}/#{name}.json"
      inside("rspec", "--format", "documentation", "--format", "json", "--out", json, *arguments,
             out: log(name), env: env)
    end

    def outcome(suite, name, status)
      told = report(name)
      examples = told.fetch("examples").group_by { |example| example.fetch("status") }
      outside = told.fetch("summary").fetch("errors_outside_of_examples_count")
      failed = examples.fetch("failed", []).size + outside
      failed = 1 if failed.zero? && !status.success?
      Outcome.new(ruby: home.entry.name, allocator: suite.allocator, suite: suite.name, failed: failed,
                  passed: examples.fetch("passed", []).size, skipped: examples.fetch("pending", []).size,
                  notes: failures(examples, name, failed) + reasons(examples))
    rescue SystemCallError, JSON::ParserError
      Outcome.new(ruby: home.entry.name, allocator: suite.allocator, suite: suite.name, passed: 0, failed: 1,
                  skipped: 0, notes: ["rspec did not finish: see #{log(name)}"])
    end

    def failures(examples, name, failed)
      return [] if failed.zero?

      ["see #{log(name)}"] + examples.fetch("failed", []).map { |example| "failed: #{example['full_description']}" }
    end

    def reasons(examples)
      examples.fetch("pending", []).map { |example| example["pending_message"].to_s }.tally
              .map { |reason, count| "skipped: #{reason}#{" (#{count})" if count > 1}" }
    end

    def inside(*command, out:, env: {})
      binds = { File.join(folder, "checkout") => CHECKOUT, File.join(folder, "results") => RESULTS,
                File.join(folder, "target") => TARGET }
      binds.update(@crates => CRATES, DebianRoot.cargo_home => DebianRoot.cargo_home) if @crates
      home.root.run("timeout", "--kill-after=20", "#{MOST_MINUTES}m", *command,
                    env: home.environment.merge(env), binds: binds, chdir: seen_at("checkout", CHECKOUT), out: out)
    end

    def seen_at(name, inside) = home.root.seen_at(File.join(folder, name), inside)

    def log(name) = File.join(folder, "results", "#{name}.log")
  end
end
