# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "memintro"
require "memintro/control"
require "memintro/control/commands"

# The page with the commands of the control socket, whose tables are made from crates/analysis/src/answers.
class ProtocolPage
  PATH = File.expand_path("../../docs/protocol.md", __dir__)
  # What is said of arguments besides their names.
  WORDS = { %w[start] => "those of `Memintro.start`", %w[hunt action] => "`action`: show, start or stop" }.freeze
  private_constant :PATH, :WORDS

  def initialize
    @commands = Memintro::Control::Protocol.commands
  end

  # @return [String]
  def text
    found = File.read(PATH, encoding: "UTF-8")
    { "commands" => commands, "sizes" => sizes, "brief" => brief }.each do |name, table|
      pattern = /(?<=<!-- #{name}: made by `rake protocol` -->\n).*?(?=<!-- \/#{name} -->)/m
      raise "docs/protocol.md has no place for #{name}" unless found.match?(pattern)

      found = found.sub(pattern) { "\n#{table}\n" }
    end
    found
  end

  # @return [Boolean]
  def stale? = File.read(PATH, encoding: "UTF-8") != text

  # @return [void]
  def write
    File.write(PATH, text)
  end

  private

  def commands
    rows = @commands.map { |name, command| "| `#{name}` | #{arguments(name)} | #{command.about} |\n".squeeze(" ") }
    "| command | arguments | answer |\n|---|---|---|\n#{rows.join}"
  end

  def arguments(name)
    WORDS.fetch([name]) do
      Memintro::Control::Commands.arguments(name).map { |one| WORDS.fetch([name, one.name], "`#{one}`") }.join(", ")
    end
  end

  def sizes
    rows = @commands.group_by { |_, command| command.bytes }.sort.map do |bytes, list|
      "| #{names(list)} | #{bytes < 1 << 20 ? "#{bytes >> 10} KiB" : "#{bytes >> 20} MiB"} |\n"
    end
    "| an answer to | at most |\n|---|---|\n#{rows.join}"
  end

  def brief
    "Brief answers (#{names(@commands.select { |_, command| command.is_brief })}) do not count among\nthe 16.\n"
  end

  def names(commands) = commands.map { |name, _| "`#{name}`" }.join(", ")
end
