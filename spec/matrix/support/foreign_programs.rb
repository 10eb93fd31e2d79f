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
  DEADLINE_SECONDS = 300

  # What the program said and how it ended, and how many allocations were seen in all of its processes.
  Tracked = Struct.new(:result, :allocations)

  @bare = {}
  class << self
    attr_reader :bare
  end

  # Skips the example unless this Ruby can load the libraries.
  def need(*libraries)
    libraries.each do |library|
      found = ForeignPrograms.bare.fetch(library) do
        found = run_command(RbConfig.ruby, "-e", "require #{library.dump}", env: program_env).success?
        ForeignPrograms.bare[library] = found
      end
      skip "#{library} is not installed for Ruby #{RUBY_VERSION}" unless found
    end
  end

  # Skips the example unless there is such a program to run.
  def need_tool(name)
    found = ForeignPrograms.bare.fetch([:tool, name]) do
      ForeignPrograms.bare[[:tool, name]] = run_command(*tool(name, "--version"), env: program_env).success?
    end
    skip "the program #{name} is not installed for Ruby #{RUBY_VERSION}" unless found
  end

  # [standard output, standard error, exit status] without memintro, which must not be empty.
  def bare(program)
    ForeignPrograms.bare[program] ||= in_folder { |folder| outcome(run_command(*command(program), **options(folder))) }
  end

  # @return [Tracked]
  def run_program(program, way)
    in_folder do |folder|
      report = File.join(folder, "report")
      result = send(:"run_#{way}", command(program), report, options(folder))
      Tracked.new(outcome(result), allocations(report))
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

  # A program of this Ruby's or of Debian's, by this Ruby.
  def tool(name, *arguments) = [RbConfig.ruby, "-S", name, *arguments]

  def rubocop_sources
    code = "require 'rubocop'; puts $LOADED_FEATURES.grep(%r{/rubocop\\.rb$})"
    library = run_command(RbConfig.ruby, "-e", code, env: program_env)
    folder = library.must_succeed.stdout.lines.last.strip.delete_suffix(".rb")
    %w[bundler security migration].map { |name| File.join(folder, "cop", name) }
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
    { env: program_env, chdir: folder, deadline_seconds: DEADLINE_SECONDS }
  end

  # Nothing that makes a program look at whoever runs the specs.
  def program_env
    { "GEM_HOME" => nil, "BUNDLE_GEMFILE" => nil, "RUBYLIB" => nil, "HOME" => "/nonexistent", "LANG" => "C.UTF-8",
      "IRB_USE_AUTOCOMPLETE" => "false" }
  end

  def outcome(result)
    [result.stdout, result.stderr, result.status.exitstatus, result.status.termsig].tap do |found|
      raise "a program that says nothing proves nothing: #{found}" if found.first.empty?
    end
  end

  # Each process leaves a report of its own.
  def allocations(report)
    Dir["#{report}*"].sum do |file|
      text = File.read(file)
      text.start_with?("{") ? JSON.parse(text).fetch("totals").fetch("allocations") : text.to_i
    end
  end
end
