# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../rakelib/native/licenses"

# The licenses that go into the precompiled gem.
RSpec.describe Native::Licenses do
  root = Subprocess::ROOT
  parts = %w[memintro.so libmemintro_hook.so memintro-tool].map { |name| File.join(root, "lib/memintro", name) }

  before(:context) { @licenses = Native::Licenses.new(Subprocess::ROOT) }

  def named(name) = @licenses.entries.find { |entry| entry.name == name || entry.name.start_with?("#{name} (in Rust") }

  it "name each crate that the debug information of the compiled parts tells of, with a text" do
    crates = described_class.crates_in(parts)
    expect(crates).to include(/\Amagnus-/, /\Aratatui-/, /\Aserde_json-/, /\Agimli-/)
    expect(crates.reject { |crate| named(crate)&.texts&.any? }).to eq([])
  end

  it "have one heading for each text, and numbers that lead to it" do
    text = @licenses.text
    numbers = text.scan(/text (\d+)/).flatten.map(&:to_i)
    expect(numbers.uniq.sort).to eq((1..text.scan(/^text \d+$/).size).to_a)
    number = text[/^magnus-\S+: MIT; text (\d+)$/, 1]
    expect(text[/^text #{number}\n-+\n\n(.*?)\n-{100}/m, 1]).to match(/Permission is hereby granted.*"AS IS"/m)
    expect(@licenses.entries.flat_map(&:texts).uniq.map { |one| text.scan(one).size }).to all(be >= 1)
  end

  it "have the license of the font that plots are drawn with" do
    font = @licenses.entries.find { |entry| entry.name.start_with?("dejavu-") }
    expect(font.texts).to include(/Bitstream Vera Fonts Copyright/)
  end

  it "are the same in each run, and tell nothing of the machine" do
    text = @licenses.text
    expect(described_class.new(root).text).to eq(text)
    expect(text.encoding).to eq(Encoding::UTF_8)
    expect(text).not_to match(%r{#{root}|\.cargo|\.rustup|memintro-(hook|tool)-})
  end

  it "are refused where a crate has no text" do
    allow(Dir).to receive(:glob).and_return([])
    expect { described_class.new(root).entries }.to raise_error(Native::Failed, /\A\S+ \(.*\) has no license text\z/)
  end
end
