# frozen_string_literal: true

require "json"
require "tmpdir"

# Runs programs of Debian's packages bare, and with full tracking by each way in.
module ForeignPrograms
  # preloaded: `memintro run`; live: tracking begins in the running program before its own first line; later: amid
  # its work, from a thread of its own.
  WAYS = %i[preloaded live later].freeze
  FOLDER = File.expand_path("../programs", __dir__)
  START_LATER = File.join(__dir__, "start_later.rb")
  AUTORUN = File.join(Subprocess::LIB, "memintro", "autorun")
  DEADLINE_SECONDS = 600

  # The messages of a program, or of one of its threads, that died of an exception.
  EXCEPTION = /\((?:\w+::)*\w*(?:Error|Exception)\)|^\s+from .+:\d+:in |unhandled exception/

  # What the program said and how it ended; how many allocations were seen in each of its processes; and, of Puma, in
  # each worker while it made 1,000 strings.
  Tracked = Struct.new(:result, :allocations, :workers)

  @bare = {}
  @reasons = {}
  class << self
    attr_reader :bare, :reasons
  end

  # Skips the example unless this Ruby can load the libraries. Where it must be able to, the example fails.
  def need(*libraries)
    libraries.each do |library|
      code = "begin; require #{library.dump}; rescue LoadError => e; abort e.message.lines.first; end"
      missing(library) { run_command(RbConfig.ruby, "-e", code, env: program_env) }
    end
  end

  # Skips the example unless there is such a program to run, as above.
  def need_tool(name)
    missing("the program #{name}") { run_command(*tool(name, "--version"), env: program_env) }
  end

  # [standard output, standard error, exit status, signal] without memintro. A program that fails without it proves
  # nothing: it must end with this status, say these words at its end, and nothing of an exception.
  def bare(program, status, words)
    ForeignPrograms.bare[program] ||= in_folder do |folder|
      outcome(run_command(*command(program), **options(folder))).tap do |said, complaints, *ended|
        unless ended == [status, nil] && said.lines.last(5).join.match?(words) && !complaints.match?(EXCEPTION)
          raise "does not work without memintro: #{ended}\n--- stdout\n#{said}\n--- stderr\n#{complaints}"
        end
      end
    end
  end

  # @return [Tracked]
  def run_program(program, way)
    in_folder do |folder|
      report = File.join(folder, "report")
      result = send(:"run_#{way}", command(program), report, options(folder))
      Tracked.new(outcome(result), allocations(report), workers(folder))
    end
  end

  # The command line of a program; a file of this name in programs/ is a program of ours for somebody else's library.
  def command(program)
    case program
    when :rubocop then tool("rubocop", "--cache", "false", "--format", "simple", *rubocop_sources)
    when :kramdown then tool("kramdown", manual("kramdown"))
    when :asciidoctor then tool("asciidoctor", "-o", "-", manual("asciidoctor"))
    when :bundle then tool("bundle", "exec", "ruby", File.join(FOLDER, "bundled.rb"))
    when :rake then tool("rake", "-f", File.join(FOLDER, "Rakefile"))
    when :irb then tool("irb", "-f", "--noprompt", "--nocolorize", File.join(FOLDER, "irb_script.rb"))
    else [RbConfig.ruby, File.join(FOLDER, "#{program}.rb")]
    end
  end

  private

  # Says why something is not to be had, in Ruby's own words. The release's own Ruby has all of the release's packages.
  def missing(what)
    reason = ForeignPrograms.reasons.fetch(what) do
      result = yield
      ForeignPrograms.reasons[what] = result.success? ? nil : result.stderr.lines.first.to_s.strip
    end
    return unless reason

    reason = "#{what} does not work with Ruby #{RUBY_VERSION}: #{reason}"
    raise reason if ENV["MEMINTRO_MATRIX_OWN"] == "1"

    skip reason
  end

  # A program of this Ruby's or of Debian's, by this Ruby.
  def tool(name, *arguments) = [RbConfig.ruby, "-S", name, *arguments]

  def rubocop_sources
    code = "require 'rubocop'; puts $LOADED_FEATURES.grep(%r{/rubocop\\.rb$})"
    library = run_command(RbConfig.ruby, "-e", code, env: program_env)
    folder = library.must_succeed.stdout.lines.last.strip.delete_suffix(".rb")
    %w[bundler gemspec metrics migration naming security].map { |name| File.join(folder, "cop", name) }
  end

  # A text long enough to work on: the same every time.
  def manual(kind) = File.join(FOLDER, "manual.#{kind == 'kramdown' ? 'md' : 'adoc'}")

  def run_preloaded(command, report, options)
    run_memintro("run", "--format", "json", "--report", report, "--", *command, **options)
  end

  def run_live(command, report, options)
    env = { "RUBYOPT" => "-r#{AUTORUN}", "MEMINTRO_REPORT" => report, "MEMINTRO_FORMAT" => "json" }
    run_command(*command, **options, env: options[:env].merge(env))
  end

  def run_later(command, report, options)
    env = { "RUBYOPT" => "-r#{START_LATER}", "MATRIX_ALLOCATIONS" => report, "MATRIX_LIB" => Subprocess::LIB }
    run_command(*command, **options, env: options[:env].merge(env))
  end

  def in_folder
    Dir.mktmpdir("memintro-program") do |folder|
      File.write(File.join(folder, "Gemfile"), "")
      yield folder
    end
  end

  def options(folder)
    env = program_env.merge("PUMA_PSS" => File.join(folder, "pss"))
    { env: env, chdir: folder, deadline_seconds: DEADLINE_SECONDS }
  end

  # No variable by which a program could depend on the user who runs the specs.
  def program_env
    { "GEM_HOME" => nil, "BUNDLE_GEMFILE" => nil, "RUBYLIB" => nil, "HOME" => "/nonexistent", "LANG" => "C.UTF-8",
      "IRB_USE_AUTOCOMPLETE" => "false" }
  end

  def outcome(result)
    [result.stdout, result.stderr, result.status.exitstatus, result.status.termsig]
  end

  # Each process leaves a report of its own.
  def allocations(report)
    Dir["#{report}*"].map do |file|
      text = File.read(file)
      text.start_with?("{") ? JSON.parse(text).fetch("totals").fetch("allocations") : text.to_i
    end
  end

  # A forked worker's report begins with its parent's figures; what its own threads have seen does not.
  def workers(folder)
    file = File.join(folder, "pss")
    File.exist?(file) ? JSON.parse(File.read(file)).fetch("booting") : []
  end
end
