# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# What Memintro.leaks calls leaked in programs that plant no leak: this process then reads all memory of the program,
# word by word, and looks for anything that points to such a block, as an address or as an Integer of Ruby.
RSpec.describe "blocks that Memintro.leaks calls leaked", :listening do
  PROGRAMS = {
    "a program that does nothing" => "",
    "code that is compiled at run time" => <<~'RUBY',
      require "forwardable"
      Class.new { extend Forwardable; def_delegators :@list, :first, :last, :size }
      20.times { |number| eval("def method_#{number}(a, *b, c: 1) = [a, b, c].map { |x| x }") }
    RUBY
    "Nokogiri" => <<~RUBY,
      require "nokogiri"
      50.times { Nokogiri::HTML("<html><body><p class='x'>hi <b>there</b></p></body></html>").css("p b").map(&:text) }
      KEPT = Nokogiri::XML("<a>" + ("<b c='d'>e</b>" * 1_000) + "</a>")
    RUBY
    "SQLite" => <<~RUBY,
      require "sqlite3"
      KEPT = SQLite3::Database.new(":memory:")
      KEPT.execute("create table t(a, b)")
      200.times { |number| KEPT.execute("insert into t values(?, ?)", [number, "x" * number]) }
    RUBY
    "Rails" => <<~RUBY,
      require "rails/all"
      class App < Rails::Application; config.eager_load = false; config.logger = Logger.new(nil); end
      App.initialize!
    RUBY
    "RuboCop" => <<~RUBY
      require "rubocop"
      out = $stdout.dup
      $stdout.reopen(File::NULL)
      RuboCop::CLI.new.run(["--cache", "false", "#{Subprocess::LIB}/memintro/cli.rb"])
      $stdout.reopen(out)
    RUBY
  }.freeze
  LONG = %w[Rails RuboCop].freeze
  # Bytes of all of them together. Ruby and Rails lose some from their start.
  MOST_BYTES = 32 << 10

  SEARCH = <<~'RUBY'
    found = Memintro.leaks(first_words: true)
    rows = found.groups.select { |group| group.verdict == :leaked }
    puts "ready", rows.map { |group| "#{group.example}:#{group.size}:#{group.site}" }.join(" "), found.leaked_bytes
    sleep
  RUBY

  # The words of a process that point into one of the ranges.
  def words_of(pid, ranges)
    low, high = ranges.map(&:begin).min, ranges.map(&:end).max + 1
    File.open("/proc/#{pid}/mem", "rb") do |memory|
      writable(pid).flat_map do |first, last|
        memory.seek(first)
        memory.read(last - first).unpack("Q*").select do |word|
          address = word < high ? word : word >> 1
          address >= low && address < high && (address == word || word.odd?) &&
            ranges.any? { |range| range.cover?(address) }
        end
      end
    end
  end

  # Where memory of a process can be written to. What is larger is reserved for arrays of Ruby 3.1, or for the hook.
  def writable(pid)
    ranges = File.foreach("/proc/#{pid}/maps").map do |line|
      line[/\A\S+/].split("-").map { |text| text.to_i(16) } if line.split[1].start_with?("rw") && !line.include?("[v")
    end
    ranges.compact.reject { |first, last| last - first > 24 << 20 }
  end

  PROGRAMS.each do |name, code|
    it "are such in #{name}: nothing points to them", long: LONG.include?(name) do
      library = code[/require "([\w\/]+)"/, 1]
      unless library.nil? || run_ruby(code: "require '#{library}'", requires: []).success?
        skip "no #{library} here"
      end

      program = start_program("Memintro.start; #{code}\n#{SEARCH}", wait: false)
      expect(program.line).to eq("ready")
      rows = program.line.split.map { |text| text.split(":", 3) }
      expect(program.line.to_i).to be <= MOST_BYTES
      # glibc's links to a free chunk behind the block point to the block's last word.
      ranges = rows.map { |address, size, _| address.to_i(16)..(address.to_i(16) + [size.to_i - 9, 0].max) }
      # Memory that is free may have kept an address.
      expect(words_of(program.pid, ranges).size).to be <= 2 unless ranges.empty?
    end
  end

  # What is lost there is what Ruby itself loses: lists of names, and code of Forwardable. All else was allocated by its
  # threads, and is somewhere in their hands.
  it "are few in a Puma under load, and none of a request's", :long do
    skip PumaServer.missing if PumaServer.missing
    Dir.mktmpdir("memintro-bin") do |folder|
      env = { "TRACK" => "1", "MEMINTRO_LISTEN" => "1", "MEMINTRO_SOCKET_FOLDER" => folder }
      rackup = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "plain.ru")
      PumaServer.run(rackup, env: env, arguments: %w[-t 4:4]) do |server|
        is_over = false
        clients = Array.new(3) { Thread.new { server.get("/stream/10000/5") until is_over } }
        sleep 1
        result = run_memintro("leaks", server.pid, "--json", env: env)
        is_over = true
        clients.each(&:join)
        found = JSON.parse(result.must_succeed.stdout, symbolize_names: true)
        lost = found[:groups].select { |group| %w[leaked indirectly_leaked].include?(group[:verdict]) }
        expect(lost.map { |group| group[:site] }.compact.grep_v(%r{/ruby/|/rubygems/})).to eq([])
        expect(found[:leaked_bytes] + found[:indirectly_leaked_bytes]).to be <= 2_048
        expect(found[:scanned_blocks]).to be > 20_000
      end
    end
  end
end
