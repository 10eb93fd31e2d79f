# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "json"
require "memintro/control/client"
require "socket"

# The fields of answers have one definition (crates/analysis/src/answers): what sends an answer picks them by it, and
# what gets one has it checked by it.
RSpec.describe "An answer of the control socket", :listening do
  # How each command is asked, so that its answer is one JSON object.
  ARGUMENTS = { "top" => { format: "json", older_than_gcs: 1 },
                "report" => { format: "json", stacks: true, rendering: true },
                "snapshot" => { parts: ["all"] }, "doctor" => { format: "json" }, "leaks" => { seconds: 300 },
                "holders" => { class: "Range", rendering: true, seconds: 300 },
                "hunt" => { action: "start" }, "vitals" => { fragmentation: true } }.freeze
  # They come last, because they end what others ask for.
  LAST = %w[clear stop].freeze

  # The answer as it was sent.
  def sent(command, arguments)
    UNIXSocket.open(File.join(socket_folder, "#{@program.pid}.sock")) do |socket|
      socket.puts(JSON.generate(command: command, arguments: arguments))
      header = JSON.parse(socket.gets)
      raise "#{command}: #{header}" unless header["ok"]

      socket.read(header["bytes"])
    end
  end

  # Names of fields that a Hash has at the first level, and all names within it.
  def names(value)
    case value
    when Hash then value.flat_map { |name, item| [name, *names(item).map { |inner| "#{name}.#{inner}" }] }
    when Array then value.flat_map { |item| names(item) }.uniq
    else []
    end
  end

  it "has exactly the fields of its command, for each command" do
    @program = start_program("Memintro.start(mode: :sampled, sample_bytes: 1024, stack_depth: 2, objects: :sampled); " \
                             "$kept = Array.new(2_000) { ['x' * 100, 1..2] }; Memintro.mark; " \
                             "Memintro.listen; GC.start; puts :ready; sleep")
    commands = Memintro::Control::Protocol.commands
    asked = (commands.keys - LAST) + LAST
    found = asked.to_h do |command|
      arguments = ARGUMENTS.fetch(command, {})
      arguments = { path: File.join(socket_folder, "heap.json") } if command == "heap_dump"
      text = sent(command, arguments)
      # What was checked has the known fields alone, and an error would name one that is missing.
      checked = Memintro::Native.read_answer(command, text, @program.pid)
      expect(names(JSON.parse(text)) - names(checked)).to eq([]), command
      [command, JSON.parse(text).keys]
    end
    found.each do |command, keys|
      must, may = commands[command].fields.partition { |field| !field.end_with?("?") }
      expect(must - keys).to eq([]), command
      expect(keys - must - may.map { |field| field.delete_suffix("?") }).to eq([]), command
    end
    expect(found.size).to eq(17)
  end

  it "is picked by the fields of its command from whatever the command knows" do
    known = { given_back_bytes: -1, secret: "x", rss: 2, rss_before: 1 }
    written = ->(values) { Memintro::Native.write_answer("trim", values) }
    expect(written[known]).to eq("{\"rss_before\":1,\"rss\":2,\"given_back_bytes\":-1}\n")
    expect { written[known.except(:rss)] }.to raise_error(KeyError, /an answer has no rss/)
    totals = Memintro::Totals.new(7, 3, 2, 1, 0, 0, 0)
    expect(JSON.parse(Memintro::Native.write_answer("stop", { state: "stopped", totals: totals })))
      .to eq("state" => "stopped", "totals" => totals.to_h.transform_keys(&:name))
  end
end
