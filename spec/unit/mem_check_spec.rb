# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/mem_check"
require "memintro/mem_check/rules"

# The parts of a memory check that need no tests to run: rules, suppressions, outputs, Valgrind's XML.
RSpec.describe "Memintro::MemCheck, part by part" do
  # "gem:f", "ruby:g", and "gem:f (a.c:3)".
  def frames(*texts)
    texts.map do |text|
      library, function, file, line = text.match(/\A(\w+):(\S+)(?: \((.*):(\d+)\))?\z/).captures
      Memintro::MemCheck::Frame.new(function: function, library: "/lib/#{library}.so", file: file, line: line&.to_i,
                                    watched: library == "gem")
    end
  end

  def culprit(*texts, skipped: []) = Memintro::MemCheck::Rules.new(skipped).culprit(frames(*texts))

  def finding(*texts, kind: "leak", **more)
    culprit = texts.index { |one| one.start_with?("gem") }
    Memintro::MemCheck::Finding.new(kind: kind, frames: frames(*texts), culprit: culprit, blocks: 2, bytes: 64, **more)
  end

  it "takes a block for the gem's by three rules" do
    expect(culprit("ruby:xmalloc", "gem:add", "gem:run", "ruby:vm_call")).to eq 1
    expect(culprit("ruby:ary_new", "ruby:rb_ary_push")).to be_nil
    expect(culprit("other:malloc_it", "ruby:vm_call0_cfunc", "ruby:rb_funcallv", "gem:run")).to be_nil
    expect(culprit("gem:call_back", "ruby:rb_yield", "gem:run")).to eq 0
    expect(culprit("gem:table", "gem:Init_gem", "ruby:dln_load")).to be_nil
    expect(culprit("gem:add", "ruby:rb_funcallv", "gem:Init_gem")).to eq 0
    expect(culprit("ruby:rb_hash_foreach", "gem:run", skipped: [/\Arb_hash_/])).to be_nil
    expect(culprit("ruby:rb_hash_foreach", "gem:run", skipped: ["rb_hash"])).to eq 1
  end

  describe "suppressions" do
    def fits?(text, one)
      Dir.mktmpdir do |folder|
        file = File.join(folder, "a.supp")
        File.write(file, "{\n a\n Memcheck:Leak\n #{text.join("\n ")}\n}\n")
        !Memintro::MemCheck::Suppressions.read([file]).matching(one).nil?
      end
    end

    it "fit stacks from the inside, with and without the allocator's frame" do
      one = finding("ruby:xmalloc", "gem:add (a.c:3)", "gem:run")
      expect([["fun:malloc", "fun:xm*"], ["fun:*alloc", "...", "fun:run"], ["...", "obj:*/gem.so"], ["..."],
              ["fun:malloc", "obj:/lib/ruby.so", "src:a.c:3"], ["...", "src:a.?"]].map { |text| fits?(text, one) })
        .to all(be(true))
      expect([["fun:xmalloc"], ["fun:malloc", "fun:add"], ["...", "fun:nobody"],
              ["fun:malloc", "...", "fun:run", "fun:*"], ["...", "src:a.c:4"]].map { |text| fits?(text, one) })
        .to all(be(false))
      expect(fits?(["fun:*"], finding("gem:add", kind: "invalid_read", kind_of_valgrind: "Addr"))).to be(false)
    end

    it "come to an end, for any patterns" do
      one = finding("ruby:#{"a" * 5000}", *(["gem:#{"b" * 100}"] * 50))
      expect(fits?(["fun:malloc", "fun:#{"*a" * 2000}c"], one)).to be(false)
      expect(fits?(["...", "fun:*b*b*b*b*c"] * 30, one)).to be(false)
    end
  end

  describe "Valgrind's XML" do
    def parsed(text)
      Dir.mktmpdir do |folder|
        file = File.join(folder, "a.xml")
        File.binwrite(file, text)
        Memintro::MemCheck::ValgrindRun.parse(file)
      end
    end

    it "is read as far as it is whole, and refused in words where it is something else" do
      one = "<valgrindoutput><error><kind>InvalidRead</kind><what>a &lt;b&gt;</what><stack><frame><fn>f</fn>" \
            "<line>3</line></frame></stack></error>"
      error = { "kind" => "InvalidRead", "what" => "a <b>", "bytes" => 0, "blocks" => 1,
                "frames" => [{ "fn" => "f", "line" => 3 }] }
      expect(parsed("#{one}</valgrindoutput>")).to eq("whole" => true, "errors" => [error])
      expect(parsed("#{one}<error><kind>Leak")).to eq("whole" => false, "errors" => [error])
      expect(parsed("#{one}\xff\0<<<")).to include("whole" => false, "errors" => [error])
      expect(parsed("")).to eq("whole" => false, "errors" => [])
      expect { parsed("<html/>") }.to raise_error(Memintro::Error, /a\.xml: .*Valgrind/)
      expect { parsed("<valgrindoutput>#{"<a>" * 5000}") }.to raise_error(Memintro::Error, /within each other/)
      expect { parsed("\xff\xfe\0") }.to raise_error(Memintro::Error, /a\.xml: /)
    end
  end

  it "writes JUnit, SARIF and annotations in which no name can do harm" do
    odd = "gem:a]]><x\e\"%0A::error::b"
    one = finding(odd, "gem:run (/src/a,b:c.c:3)")
    Dir.mktmpdir do |folder|
      config = Memintro::MemCheck::Configuration.new(junit: "#{folder}/j.xml", sarif: "#{folder}/s.json",
                                                     annotations: true)
      expect { Memintro::MemCheck::Outputs.write(config, [one]) }
        .to output(/\A::error title=memory check::2 blocks [^\n]*%250A[^\n]*\n\z/).to_stdout
      expect(File.read(config.junit)).not_to match(/\]\]><x|\e/)
      expect(JSON.parse(File.read(config.sarif)).dig("runs", 0, "results", 0, "ruleId")).to eq "leak"
      Memintro::MemCheck::Outputs.write(config.copy(annotations: false), [], trouble: "no \"verdict\" & <more>")
      expect(File.read(config.junit)).to include('errors="1"', "no &quot;verdict&quot; &amp; &lt;more&gt;")
    end
  end

  it "knows a finding again by kind, library and functions, and no other" do
    one = finding("ruby:xmalloc", "gem:add (a.c:3)", "gem:run")
    same = finding("gem:add (a.c:9)", "gem:run")
    expect(one.fingerprint).to eq same.fingerprint
    others = [finding("gem:add"), finding("gem:add", "gem:run", kind: "no_free"),
              finding("gem:add", "gem:run", subject: "x")]
    expect([one, *others].map(&:fingerprint).uniq.size).to eq 4
  end

  it "checks each setting in words" do
    { binary_name: "a/b", backend: :gdb, suppressions: "a", exit_status: 0, seconds: 1.5, junit: "", repeat: 3,
      skipped_ruby_functions: [1], output: nil }.each do |name, value|
      expect { Memintro::MemCheck::Configuration.new(name => value) }
        .to raise_error(ArgumentError, /\A#{name} of a memory check must be .*, and is /)
    end
    expect(Memintro::MemCheck::Configuration.new(binary_name: "a.so").binaries).to eq ["a"]
  end
end
