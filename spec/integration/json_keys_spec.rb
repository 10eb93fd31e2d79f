# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# JSON may have a key twice, and its readers take one of the two values, or none.
RSpec.describe "JSON of every command that asks a process", :listening do
  # A parsed object, which must not have a key twice.
  once = Class.new(Hash) do
    def []=(key, value)
      raise "#{key} stands twice" if key?(key)

      super
    end
  end

  it "has each key once" do
    program = start_program("class Row; end; KEPT = Array.new(50) { Row.new }; Memintro.listen; puts :ready; sleep",
                            env: { "MEMINTRO_STACK_DEPTH" => "4" })
    asked = [%w[start --objects], %w[mark], %w[top], %w[account], %w[leaks], %w[holders --class Row], %w[hunt],
             %w[hunt --show], %w[hunt --stop], %w[gc], %w[trim], %w[histogram], %w[iseqs], %w[snapshot], %w[doctor],
             %w[diff --for 1], %w[report], %w[rss], %w[ps], %w[clear], %w[stop]]
    asked.each do |command, *options|
      process = command == "ps" ? [] : [program.pid]
      flags = command == "rss" ? %w[--format json] : %w[--json]
      text = memintro(command, *options, *flags, *process).must_succeed.stdout
      text = [text] unless %w[hunt rss ps].include?(command)
      text = text.lines if text.is_a?(String)
      told = text.map { |one| JSON.parse(one, object_class: once) }
      expect(told.first["pid"]).to eq(program.pid), command if %w[hunt gc trim].include?(command)
    rescue JSON::ParserError, RuntimeError => e
      raise "#{command} #{options.join(' ')}: #{e.message}"
    end
  end
end
