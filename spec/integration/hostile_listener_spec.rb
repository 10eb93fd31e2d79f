# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/hostile_listener"
require_relative "../support/listening"
require "timeout"

# What the command makes of something that listens in the folder and is no process of memintro's.
RSpec.describe "what listens and is hostile", :listening do
  # Whatever a terminal acts upon; line breaks are the command's own.
  ACTED_UPON = /[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
  # Each of the controls, in a text that is valid JSON.
  NASTY = "\e[2J\e]0;t\a\r\n\x7f\u009b31m\u202Eevil\u2066\u200F\u061C\u2028"
  # Address space of a command, of which Ruby takes a part: what takes all memory fails here.
  MOST_KIB = 3_000_000

  # Values of a wrong type for most fields, and beyond bounds for the others.
  ODD_ANSWERS = [[], ["x"], {}, { "a" => 1 }, "7", "x" * 5_000, NASTY, -1, 1.5, 10**30, 1e300, true].freeze

  let(:pid) { Process.pid }
  let(:path) { File.join(socket_folder, "#{pid}.sock") }

  # Runs the command while that listens.
  def against(*arguments, behaviour:) = against_each([arguments], behaviour: behaviour).first

  # Forks a process for each command, six at a time, and answers what each left behind.
  COMMANDS_IN_TURN = "MOST_KIB = #{MOST_KIB}\n" + Subprocess.read_program("hostile_listener/commands_in_turn.rb")

  Ended = Struct.new(:code, :took, :stdout, :stderr)

  def against_each(commands, behaviour:)
    listener = HostileListener.new(path, &behaviour)
    words = commands.map { |arguments| arguments.map(&:to_s) }
    run_ruby(nil, JSON.generate(words), code: COMMANDS_IN_TURN, env: listening_env).must_succeed.json.map do |found|
      texts = found[:texts].map { |text| text.unpack1("m0").force_encoding(Encoding::UTF_8) }
      Ended.new(found[:code], found[:took], *texts)
    end
  ensure
    listener&.close
  end

  # Ways to answer any command.
  WAYS = {
    "nothing at all" => ->(_, socket) { socket.read },
    "the end at once" => ->(*) {},
    "the end in the header" => ->(_, socket) { socket.write('{"ok":true,"byt') },
    "the end in the body" => ->(_, socket) { socket.write("{\"ok\":true,\"bytes\":100}\n{\"pid\":") },
    "binary garbage" => ->(_, socket) { socket.write((0..255).map(&:chr).join * 4, "\n") },
    "invalid UTF-8" => ->(_, socket) { socket.write("{\"ok\":true,\"program\":\"\xFF\xFE\"}\n") },
    "a line without end" => ->(_, socket) { loop { socket.write("x" * 65_536) } },
    "pieces without end" => lambda do |_, socket|
      socket.write("{\"ok\":true,\"bytes\":null}\n")
      loop { socket.write("65536\n", "x" * 65_536) }
    end,
    "a piece of 10**15 bytes" => lambda do |_, socket|
      socket.write("{\"ok\":true,\"bytes\":null}\n1000000000000000\n")
      loop { socket.write("x" * 65_536) }
    end,
    "10**15 bytes" => lambda do |_, socket|
      socket.write("{\"ok\":true,\"bytes\":1000000000000000}\n")
      loop { socket.write("x" * 65_536) }
    end,
    "a byte now and then" => ->(_, socket) { loop { socket.write("1") && sleep(0.1) } },
    "deep nesting" => ->(_, socket) { socket.write(HostileListener.answer("[" * 50_000)) },
    "a deep header" => ->(_, socket) { socket.write("[" * 60_000, "\n") },
    "millions of values" => lambda do |_, socket|
      socket.write(HostileListener.answer("[#{'1,' * 15_000_000}1]"))
    end,
    "another JSON value" => ->(_, socket) { socket.write(HostileListener.answer("7")) },
    "an array" => ->(_, socket) { socket.write(HostileListener.answer([1])) },
    "bytes as a text" => ->(_, socket) { socket.write(HostileListener.answer("1234567", bytes: "7")) },
    "a negative size" => ->(_, socket) { socket.write(HostileListener.answer("{}", bytes: -1)) },
    "ok as a number" => ->(_, socket) { socket.write(HostileListener.answer("{}", ok: 1)) },
    "a refusal full of controls" => lambda do |_, socket|
      socket.puts(JSON.generate(ok: false, memintro: "0", protocol: 1, error: NASTY, message: NASTY))
    end,
    "a refusal of the wrong types" => ->(_, socket) { socket.puts('{"ok":false,"error":[],"message":{"a":1}}') },
    "a text full of controls" => ->(_, socket) { socket.write(HostileListener.answer(NASTY * 3, format: "text")) }
  }.freeze

  COMMANDS = [%w[start], %w[stop], %w[mark], %w[clear], %w[gc], %w[top], %w[top --json], %w[top --workers],
              %w[report], %w[report --json], %w[report --workers --json], %w[doctor], %w[doctor --json],
              %w[snapshot], %w[snapshot --json], %w[iseqs], %w[histogram], %w[diff --for 0.1]].freeze

  # Texts of any content are an answer to these.
  def text?(arguments) = %w[top report doctor].include?(arguments[0]) && arguments.size == 1

  WAYS.each do |name, behaviour|
    it "ends every command within bounds that is answered with #{name}" do
      # The first question is an honest one's: who it is.
      honest = HostileListener.answer(HostileListener.honest(pid)["info"])
      answering = ->(command, socket) { command == "info" ? socket.write(honest) : behaviour.call(command, socket) }
      commands = COMMANDS.map { |arguments| [*arguments, pid, "--timeout", "0.5"] }
      COMMANDS.zip(against_each(commands, behaviour: answering)) do |arguments, result|
        said = "#{arguments.join(' ')}: #{result.code}\n#{result.stdout[0, 500]}\n#{result.stderr[0, 500]}"
        expect(result.took).to be < 30, said
        expect(result.stdout + result.stderr).not_to match(ACTED_UPON), said
        expect(result.stderr).not_to match(/NoMethodError|undefined method|\.rb:\d+:in|failed to allocate/), said
        next if text?(arguments) && result.code.zero?

        expect(result.code).to eq(1), said
        expect(result.stderr.lines).to all(start_with("memintro: ")), said
      end
    end

    it "is shown as bad by ps, and the others as ever, where it answers #{name}" do
      program = start_program("Memintro.listen(name: 'good'); puts :ready; sleep")
      table, json = against_each([["ps"], ["ps", "--json"]], behaviour: behaviour)
      [table, json].each do |result|
        expect([result.code, result.stderr]).to eq([0, ""]), result.inspect
        expect(result.stdout).not_to match(ACTED_UPON)
      end
      expect(table.stdout).to match(/^ *#{program.pid} .* off +\S+ +good +-e$/)
      expect(table.stdout).to match(/^ *#{pid} .* \? +\? +- /).and match(%r{^note: .*(?:process |/)#{pid}[ .]\S+})
      rows = json.stdout.lines.map { |line| JSON.parse(line) }
      expect(rows.map { |row| row["pid"] }).to contain_exactly(pid, program.pid)
      expect(rows.find { |row| row["pid"] == pid }.keys).to eq(%w[pid socket problem])
    end
  end

  describe "in one field" do
    # Every field of an answer, as a path.
    def fields(value, at = [])
      return [] unless value.is_a?(Hash)

      value.flat_map do |key, item|
        inner = item.is_a?(Array) ? fields(item.first, [*at, key, 0]) : fields(item, [*at, key])
        [[*at, key], *inner]
      end
    end

    def with(answer, field, value)
      copy = JSON.parse(JSON.generate(answer))
      *parents, last = field.map { |key| key.is_a?(Symbol) ? key.to_s : key }
      parent = parents.reduce(copy) { |inner, key| inner[key] }
      value == :missing ? parent.delete(last) : parent[last] = value
      copy
    end

    # In this process: some hundred answers for each command.
    def ask(command, answer)
      require "memintro/control/directory"
      @answer = HostileListener.answer(answer)
      Memintro::Control::Client.new(pid, path, patience: 5).ask_json(command)
    rescue Memintro::ControlError => e
      e.message
    end

    it "is refused with the field's name, or is harmless" do
      require "memintro"
      require "memintro/control/directory"
      listener = HostileListener.new(path) { |_, socket| socket.write(@answer) }
      counts = HostileListener.honest(pid).to_h do |command, honest|
        expect(ask(command, honest)).to be_a(Hash), "#{command}: #{ask(command, honest)}"
        expect(ask(command, honest.merge(extra: [NASTY, { a: 1 }])).keys).not_to include("extra")
        outcomes = fields(honest).product([*ODD_ANSWERS, :missing]).map do |field, value|
          found = ask(command, with(honest, field, value))
          next 0 if found.is_a?(Hash)

          expect(found).to match(/\Aprocess #{pid} gave no valid answer to #{command}: #{field.first}\S* is /)
          expect(found).not_to match(ACTED_UPON)
          1
        end
        [command, outcomes.sum]
      end
      # Of twelve odd values few fit a field, and what may be left out may be missing.
      sizes = HostileListener.honest(pid).transform_values { |honest| fields(honest).size * ODD_ANSWERS.size }
      counts.each { |command, refused| expect(refused).to be > sizes[command] * 0.7, "#{command}: #{refused}" }
    ensure
      listener&.close
    end

    it "does not end ps, with a wrong value in any field" do
      honest = HostileListener.honest(pid)["info"]
      [[:program, []], [:name, { "a" => 1 }], [:mode, NASTY], [:memintro, "\e[2J"], [:ppid, "x"], [:pid, 1],
       [:rss_bytes, -1], [:commands, "x"]].each do |name, value|
        result = against("ps", behaviour: ->(_, s) { s.write(HostileListener.answer(honest.merge(name => value))) })
        expect([result.code, result.stderr]).to eq([0, ""])
        expect(result.stdout).to match(/^note: process #{pid} gave no valid answer to info: #{name} is /)
        expect(result.stdout).not_to match(ACTED_UPON)
      end
    end

    it "is shown harmless where it may be any text" do
      honest = HostileListener.honest(pid)["info"].merge(program: NASTY, name: NASTY)
      behaviour = ->(_, socket) { socket.write(HostileListener.answer(honest, program: NASTY)) }
      [["ps"], ["ps", "--json"], ["mark", "nobody"], ["mark", "nobody", "--workers"]].each do |arguments|
        result = against(*arguments, behaviour: behaviour)
        expect(result.stdout + result.stderr).not_to match(ACTED_UPON)
        expect(result.stdout + result.stderr).to include("evil")
      end
      expect(against("ps", behaviour: behaviour).stdout).to include('\x1B[2J\x1B]0;t\x07\x0D\x0A\x7F\xC2\x9B31m')
      json = JSON.parse(against("ps", "--json", behaviour: behaviour).stdout)
      expect([json["program"], json["name"]]).to eq([NASTY, NASTY])
    end

    it "is shown harmless in names of call sites" do
      honest = HostileListener.honest(pid)
      site = honest["report"][:call_sites].first.merge(name: "#{NASTY}:1", path: NASTY)
      report = honest["report"].merge(call_sites: [site])
      behaviour = lambda do |command, socket|
        socket.write(HostileListener.answer(command == "info" ? honest["info"] : report))
      end
      [%w[top --workers], %w[top --json], %w[report --json], %w[report --json --workers]].each do |arguments|
        result = against(*arguments, pid, behaviour: behaviour)
        expect([result.code, result.stderr]).to eq([0, ""])
        expect(result.stdout + result.stderr).not_to match(ACTED_UPON)
        next unless arguments.include?("--json")

        expect(JSON.parse(result.stdout)["call_sites"].first["path"]).to eq(NASTY)
      end
    end
  end
end
