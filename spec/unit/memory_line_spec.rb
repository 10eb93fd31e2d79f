# frozen_string_literal: true

require_relative "../spec_helper"
require "json"
require "memintro"
require "memintro/logging/memory_line"

RSpec.describe "Memintro::MemoryLine" do
  def quoted(value) = Memintro::MemoryLine.quote(value)

  # The line of an object whose only field is a path.
  def line_of(path, format) = Memintro::MemoryLine.new([:path], format).render(Struct.new(:path).new(path))

  # Parses a line by the rules of docs/memory_lines.md.
  def parsed(line)
    line.scan(/(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))/).map { |name, inner, plain| [name, inner || plain] }
  end

  it "leaves plain text as it is" do
    ["/posts/1.json", "GET", "a-b_c~d", "posts#show", "/a%20b", "/x?y", "[::1]:80"].each do |text|
      expect(quoted(text)).to eq(text)
    end
  end

  it "quotes what is not plain, and what would not be seen" do
    expect(quoted("/a b")).to eq('"/a b"')
    expect(quoted("")).to eq('""')
    expect(quoted("a=b")).to eq('"a=b"')
    expect(quoted('a"b\\')).to eq('"a\\"b\\\\"')
    expect(quoted("/ä")).to eq('"/ä"')
  end

  it "escapes unprintable characters, in any encoding" do
    expect(quoted("a\nb\r\t\0\e")).to eq('"a\\nb\\r\\t\\u{0}\\u{1B}"')
    expect(quoted("\xFF\xC3".b)).to eq('"\\xFF\\xC3"')
    expect(quoted("ä".b)).to eq('"ä"')
    expect(quoted("a\u2028b\u0085\u202E\u200B")).to eq('"a\\u{2028}b\\u{85}\\u{202E}\\u{200B}"')
    expect(quoted("a\nb".encode("UTF-16LE"))).to eq('"a\\nb"')
  end

  it "cuts what a client made too long" do
    expect(quoted("/#{'a' * 100_000}")).to eq("\"/#{'a' * 1_023}...\"")
  end

  hostile = ["/\nMEMORY method=GET path=/x status=200", "/ status=200", "/\" status=200", "/\\\" status=200", "/\\",
             "/\u2028MEMORY", "/\u0085MEMORY", "/\r\n", "\xFF\n\xFE".b, "/\x1B[2K", "\u0000",
             "/=", "\xE2\x80", " ", "\\\\\""]

  hostile.each do |path|
    it "cannot be forged by #{path.inspect}" do
      line = line_of(path, :logfmt)
      expect(line.lines.size).to eq(1)
      expect(line).to be_valid_encoding
      expect(line).to match(/\A[[:print:]]*\z/)
      expect(parsed(line.delete_prefix("MEMORY ")).map(&:first)).to eq(["path"])

      object = JSON.parse(line_of(path, :json))
      expect(object.keys).to eq(%w[event path])
      expect(line_of(path, :json).lines.size).to eq(1)
    end
  end

  it "cannot be forged by random bytes" do
    random = Random.new(7)
    500.times do
      bytes = random.bytes(random.rand(40))
      line = line_of(bytes, :logfmt)
      expect(line.lines.size).to eq(1), bytes.inspect
      expect(parsed(line.delete_prefix("MEMORY ")).map(&:first)).to eq(["path"]), bytes.inspect
      expect(JSON.parse(line_of(bytes, :json)).keys).to eq(%w[event path])
    end
  end

  it "writes JSON that the json library reads back, for any text" do
    random = Random.new(8)
    texts = Array.new(500) { random.bytes(random.rand(20)).force_encoding(Encoding::UTF_8) }
    texts += ["", "a b", "[]", "\\", "\"", "\x7F", "é", "a" * 1_023, :symbol]
    texts.each do |text|
      said = text.to_s.scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02X", byte) }.join }
      expect(JSON.parse(line_of(text, :json))).to eq("event" => "MEMORY", "path" => said), text.inspect
    end
    expect(line_of("a\u00E9".encode("UTF-16LE"), :json)).to eq('{"event":"MEMORY","path":"aé"}')
    expect(line_of("a" * 1_025, :json)).to end_with('aaa..."}')
    expect(line_of(12.5, :json)).to eq('{"event":"MEMORY","path":12.5}')
  end

  it "leaves out what is not known" do
    figures = Struct.new(:a, :b, :c).new(1, nil, 2.5)
    expect(Memintro::MemoryLine.new(%i[a b c], :logfmt).render(figures)).to eq("MEMORY a=1 c=2.5")
    expect(Memintro::MemoryLine.new(%i[a b c], :json).render(figures)).to eq('{"event":"MEMORY","a":1,"c":2.5}')
  end
end
