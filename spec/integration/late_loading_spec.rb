# frozen_string_literal: true

require_relative "../spec_helper"

# Files that are loaded at the first use, and what may come between.
RSpec.describe "What memintro loads late" do
  # Slow enough for other threads to come meanwhile: each line that loads these files lets them run.
  SLOWLY = <<~'RUBY'
    LATE = %r{/memintro/(malloc/(call_sites|site_figures)|heap/(walks|heap_copy|hold)|report/|support/(list|units))}
    AMID = Queue.new
    TracePoint.new(:line) { |at|
      at.method_id.nil? && LATE.match?(at.path) && at.lineno > 8 && (AMID << at.path; sleep 0.002)
    }.enable
  RUBY

  # The private methods of one would take the place of another one's.
  it "has no method in two of the modules of methods" do
    names = run_ruby(code: <<~RUBY).must_succeed.stdout
      modules = Memintro.singleton_class.included_modules.select { |one| one.name.to_s.start_with?("Memintro::") }
      names = modules.flat_map { |one| one.instance_methods(false) + one.private_instance_methods(false) }
      puts names.size, names.tally.select { |_, count| count > 1 }.keys.inspect
    RUBY
    expect(names.lines.first.to_i).to be > 60
    expect(names.lines.last).to eq("[]\n")
  end

  it "is there with each file that docs/api.md says to require, whichever is the first" do
    page = File.read(File.join(Subprocess::ROOT, "docs/api.md"))
    names = page[/^## Files to require.*/m].scan(%r{`(memintro(?:/\w+)?)`}).flatten.uniq
    expect(names).to include("memintro", "memintro/rack", "memintro/snapshot", "memintro/control", "memintro/error")
    said = run_ruby(nil, *names, "rails/railtie", code: <<~'RUBY', requires: ["json"]).must_succeed.stdout
      load_it = lambda do |name|
        require name
        "there"
      rescue ScriptError, StandardError => e
        "#{e.class}: #{e.message}"
      end
      said = ARGV.to_h do |name|
        [name, IO.popen("-") { |child| child&.read || ($stdout.syswrite(load_it.call(name)) && exit!(0)) }]
      end
      puts JSON.generate(said)
    RUBY
    said = JSON.parse(said)
    # Rails itself may not load, as on Debian's Ruby 3.4, for which there is no nokogiri. Then its file says just that.
    rails = said.delete("rails/railtie")
    expect(rails).to eq("there") if ENV["MEMINTRO_MATRIX_OWN"] == "1"
    expect(said).to eq(names.to_h { |name| [name, name == "memintro/railtie" ? rails : "there"] })
  end

  it "is there in a program that has constants of any names" do
    found = run_ruby(code: <<~'RUBY').must_succeed.stdout
      constants = Memintro.constants.map { |name| Memintro.const_get(name) }.grep(Module).flat_map(&:constants)
      [*constants, *Memintro::Loader::FILES.keys].each { |name| Object.const_set(name, 1) unless Object.const_defined?(name) }
      puts [Memintro.snapshot(:iseqs).class, Memintro.doctor.class, Memintro.account.class, Memintro.histogram.class].inspect
    RUBY
    expect(found).to eq("[Memintro::Snapshot, Memintro::Doctor, Memintro::Account, Memintro::List]\n")
  end

  it "is there for many threads whose first calls come at the same time" do
    answers = run_ruby(code: <<~RUBY, requires: %w[memintro json stringio]).must_succeed.json
      #{SLOWLY}
      QUESTIONS = [-> { Memintro.top.size }, -> { Memintro.report(StringIO.new).to_a.size }, -> { Memintro.iseqs.count },
                   -> { Memintro.report(StringIO.new, format: :json).to_a.size }, -> { Memintro.histogram(3).size },
                   -> { Memintro.snapshot.pid }, -> { Memintro.each_call_site.to_a.size }, -> { Memintro["(gc)"].to_a.size },
                   -> { Memintro.doctor.to_s.size }, -> { Memintro.totals.allocations },
                   -> { Memintro.holders("Module").objects }, -> { Memintro.roots.size }].freeze
      gate = Queue.new
      threads = (QUESTIONS * 2).map { |ask| Thread.new { gate.pop; begin; ask.call; rescue Exception => e; e.message; end } }
      gate.close
      puts JSON.generate(threads.map(&:value))
    RUBY
    expect(answers.size).to eq(24)
    expect(answers).to all(be_an(Integer))
  end

  it "is whole for questions to the heap although who read it was killed, or the process forked meanwhile" do
    answers = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      #{SLOWLY}
      first = Thread.new { Memintro.holders("Module").objects }
      AMID.pop
      reader, writer = IO.pipe
      pid = fork { writer.puts(begin; Memintro.holders("Module").objects; rescue Exception => e; e.message; end); exit!(0) }
      writer.close
      first.kill
      puts JSON.generate([IO.select([reader], nil, nil, 20) && reader.read.to_i, Memintro.holders("Module").objects])
      Process.kill(:KILL, pid)
    RUBY
    expect(answers).to all(be > 10)
  end

  it "is whole although the thread that loads it is killed, or runs out of time" do
    answers = run_ruby(code: <<~RUBY, requires: %w[memintro json timeout], flags: ["-w"]).must_succeed
      #{SLOWLY}
      first = Thread.new { Memintro.top }
      AMID.pop
      first.kill
      killed = Memintro.top.size
      late = (Timeout.timeout(0.01) { Memintro.iseqs.count } rescue $!.class)
      puts JSON.generate([first.join.value, killed, late, Memintro.iseqs.count.positive?])
    RUBY
    expect(answers.json).to eq([nil, 0, "Timeout::Error", true])
    # With -w, Ruby 3.1.2 warns of a circle if a thread waits for a file that another thread loads.
    said = answers.stderr.lines
    said = said.grep_v(/circular require considered harmful|\A\tfrom |\A\n\z/) if RUBY_VERSION == "3.1.2"
    expect(said).to eq([])
  end

  it "is had by a child that was forked while another thread loaded it" do
    answers = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      #{SLOWLY}
      first = Thread.new { Memintro.top.size }
      AMID.pop
      reader, writer = IO.pipe
      pid = fork { writer.puts(begin; Memintro.top.size; rescue Exception => e; e.message; end); exit!(0) }
      writer.close
      puts JSON.generate([IO.select([reader], nil, nil, 20) && reader.read.to_s.chomp, first.value])
      Process.kill(:KILL, pid)
    RUBY
    expect(answers).to eq(["0", 0])
  end

  { "a handler" => "Memintro.top.size", "a fiber of a handler" => "Fiber.new { Memintro.top.size }.resume" }
    .each do |who, asks|
    it "is refused at once to #{who} that interrupts the loading, and is there afterwards" do
      answers = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
        #{SLOWLY}
        said = nil
        seconds = 0
        trap(:USR2) do
          begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          said ||= begin; #{asks}; rescue Memintro::Error => e; e.message; end
          seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
        end
        Thread.new { AMID.pop; Process.kill(:USR2, Process.pid) }
        puts JSON.generate([Memintro.top.size, said, seconds, Memintro.top.size])
      RUBY
      expect(answers.values_at(0, 3)).to eq([0, 0])
      expect(answers[1]).to match(/\Afiles of memintro cannot be loaded in this signal handler, .*; ask again later/)
      expect(answers[2]).to be < 2
    end
  end

  it "makes Ruby print no warning, with any file loaded first" do
    said = run_ruby(code: <<~RUBY, requires: []).must_succeed
      $VERBOSE = true
      require "memintro"
      names = Memintro::Loader::FILES.keys
      # A measurement needs the settings while its file is loaded.
      names.each { |name| Process.wait(fork { Memintro.configuration && Memintro::Loader.need(name); exit! }) }
      puts names.size
    RUBY
    expect(said.stdout.to_i).to be > 30
    expect(said.stderr).to eq("")
  end

  it "is missed in words where its files are gone, and the program goes on" do
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(File.expand_path("../../lib", __dir__), folder)
      lib = File.join(folder, "lib")
      answers = run_ruby(nil, lib, code: <<~RUBY, requires: []).must_succeed.stdout.lines
        require File.join(ARGV.first, "memintro.rb")
        Memintro.start(mode: :sampled)
        File.delete(File.join(ARGV.first, "memintro/malloc/call_sites.rb"))
        puts begin; Memintro.top; rescue Memintro::Error => e; e.message; end
        puts Memintro.tracking?, Memintro.stop.is_a?(Memintro::Totals)
      RUBY
      said = /\Aa file of memintro cannot be loaded \(.*call_sites.*\): .*; call Memintro.eager_load before$/
      expect(answers).to match([said, "true\n", "true\n"])
    end
  end
end
