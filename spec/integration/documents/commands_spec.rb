# frozen_string_literal: true

require_relative "../../spec_helper"

# What README.md and docs/ tell people to type, typed: a block after the other, in a folder that has `examples` and
# nothing else, with `memintro` and `ruby -rmemintro` standing for this checkout's.
RSpec.describe "README.md and docs/" do
  # Required output of each command, in a stream or a file, without the programs' own output.
  SAYS = {
    /\Amemintro run --format html/ => %r{<title>.*examples/leak\.rb}m,
    /\Amemintro run --format json/ => %r{"name":".*examples/leak\.rb:12"},
    /\Amemintro report .* --html/ => %r{<title>.*examples/leak\.rb}m,
    /\Amemintro run --mode sampled/ => %r{~.*examples/leak\.rb:12$},
    %r{\A(memintro run|eval) .*/leak\.rb"?\z} => %r{\bexamples/leak\.rb:12\b},
    /\Amemintro run --compat mwrap/ => %r{mwrap_leak\.rb:12 growth: 512\d+ allocs/frees \(10\d+/50000\)},
    /Memintro\.account/ => %r{^\d+\.\d% of .* that no Ruby object .* call site is examples/leak\.rb:12 \(48\.8},
    /\Aruby -rmemintro/ => %r{\bexamples/leak\.rb:12\b},
    /\Amemintro env .*--for docker/ => /\AENV LD_PRELOAD=".*libmemintro_hook\.so.*MEMINTRO_REPORT=/,
    /\Amemintro env .*--for systemd/ => /\AEnvironment="LD_PRELOAD=.*libmemintro_hook\.so.*MEMINTRO_REPORT=/,
    /\Amemintro env/ => /\ALD_PRELOAD=.*libmemintro_hook\.so.*MEMINTRO_REPORT=/,
    /\Amemintro diff .*html/ => /<title>.*generated\.rb/m,
    /\Amemintro diff .*big_module/ => /generated\.rb/,
    %r{\Amemintro diff .*one\.json} => /^Instruction sequences \+\d+\.\d MiB in [\d,]+, .* of generated\.rb/,
    %r{; memintro diff .*1\.json} => /^memintro \S+: 3 snapshots in /,
    /\Amemintro iseqs/ => /10,000 +generated\.rb:1$/,
    /\Amemintro snapshot .*--track/ => /leak\.rb:12/,
    /histogram/ => /^ *[\d.]+ [KM]iB .* String$/,
    %r{\Amemintro snapshot tmp/} => /^#<Memintro::Snapshot .*\n  types: T_STRING /,
    /\Amemintro snapshot -o/ => /"memintro_snapshot":1.*"iseqs":/m,
    /\Amemintro rss/ => /\d [KM]iB/,
    /\Amemintro doctor/ => /^memintro run: works$/,
    /\Amemintro plot .*svg/ => /<polyline/,
    /\Amemintro plot/ => /RSS, MiB/,
    /requests --json/ => /"kinds":4,/,
    /\Amemintro requests/ => %r{GET /reports/:id$},
    /\Aruby examples/ => /\S/
  }.freeze
  # Lines that are compared with what is shown, where others differ by Ruby. Output about samples depends on the drawn
  # ones.
  STEADY = { /Memintro\.report\(top: 3\)/ => /\A(?! +via )/, /Memintro\.account/ => /malloc_native|no Ruby object/,
             /mwrap/ => %r{\ARSS:|\Aexamples/mwrap_leak\.rb:12 } }.freeze

  def typed(command)
    env = { "PATH" => "#{@folder}/bin:#{ENV.fetch('PATH')}", "RUBYLIB" => Subprocess::LIB }
    run_command("sh", "-c", command, way: :bare, env: env, chdir: @folder).must_succeed
  end

  def written_since(before)
    files = Dir[File.join(@folder, "tmp", "*.*")].select { |file| File.mtime(file) >= before }
    files.map { |file| File.binread(file).force_encoding("UTF-8") }
  end

  def check(command)
    before = Time.now - 0.1
    result = typed(command.text)
    said = [result.stdout, result.stderr, *written_since(before)].join("\n")
    wanted = SAYS.find { |pattern, _| command.text.match?(pattern) }&.last || raise("SAYS has no #{command.text}")
    # Not all of a saved snapshot.
    expect(said.match?(wanted)).to be(true), "#{command.text} does not say #{wanted.inspect}:\n#{said[0, 4_000]}"
    return if command.shown.strip.empty?

    steady = STEADY.find { |pattern, _| command.text.match?(pattern) }&.last || //
    expect(Documents.differences(command.shown, result.stdout + result.stderr, steady: steady))
      .to eq([[], []]), "#{command.text}\n#{result.stdout}#{result.stderr}"
  end

  Documents.blocks("console", "sh").each do |block|
    commands = block.commands.reject { |command| Documents.elsewhere?(command.text) }
    next if commands.empty?

    it "#{block} is right about: #{commands.map(&:text).join(', ')}" do
      reason = Documents.missing(block.code)
      skip reason if reason
      Documents.workspace(log: block.code.include?("log/production")) do |folder|
        @folder = folder
        commands.each { |command| check(command) }
      end
    end
  end

  # Outputs whose numbers must be right, not only their form.
  describe "the figures that are shown" do
    around { |example| Documents.workspace { |folder| (@folder = folder) && example.run } }

    def shown(beginning)
      commands = Documents.blocks("console").flat_map(&:commands)
      commands.find { |command| command.text.start_with?(beginning) && command.shown.lines.size > 3 }
    end

    def mebibytes(text, row) = text[row, 1].to_f

    it "are those of the line that leaks" do
      row = %r{^.*examples/leak\.rb:12$}
      command = shown("ruby -rmemintro -e 'Memintro.start; load \"examples/leak.rb\"; Memintro.report")
      [command.shown, typed(command.text).stdout].each do |text|
        counts = text[row].split.grep(/\A[\d,]+\z/).map { |cell| cell.delete(",").to_i }
        # A few more blocks: the records of pages by which Ruby's heap grows, at any line.
        expect(counts).to match([be_between(50_000, 50_020), be_between(100_000, 100_020), be_between(50_000, 50_020)])
      end
    end

    it "are those of the methods that cannot be seen" do
      row = /^\+(\d+\.\d) MiB  \+10,000  \d+\.\d MiB     10,000  generated\.rb$/
      command = shown("memintro diff --top 3")
      given = typed(command.text).stderr
      expect([command.shown, given]).to all(match(row))
      expect(given).to match(/^Instruction sequences \+\d+\.\d MiB in 10,00\d, (?:nearly )?all of generated\.rb\.$/)
      # The size of compiled code differs by Ruby.
      expect(mebibytes(given, row)).to be_within(25).of(mebibytes(command.shown, row))
    end

    it "are those of the line that generates them" do
      row = /^(\d+\.\d) MiB  9\d\.\d%  10,000  generated\.rb:1$/
      command = shown("memintro iseqs --by location --top 5")
      given = typed(command.text).stderr
      expect([command.shown, given]).to all(match(row))
      expect(mebibytes(given, row)).to be_within(25).of(mebibytes(command.shown, row))
      # The heading, a blank line, titles and five rows, and what is left out.
      expect(given.lines.size).to eq(10)
    end
  end
end
