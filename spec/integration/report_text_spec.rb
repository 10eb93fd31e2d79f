# frozen_string_literal: true

require_relative "../spec_helper"

# The text of a report is the same from the process and from the JSON that it has written.
RSpec.describe "The text of a report" do
  # Both of the same figures, by all of these figures and with several numbers of sites; prints what differs.
  TWINS = Subprocess.read_program("report_text/twins.rb")

  def differences(code)
    result = run_ruby(code: TWINS + code, env: { "TERM" => "xterm" }).must_succeed
    expect(result.stdout.lines.last).to eq("differences: []\n")
    result.stdout
  end

  it "is the same from process and JSON for exact figures, with a mark and after a stop" do
    text = differences(<<~RUBY)
      Memintro.start
      kept = (1..200).map(&MAKE)
      GC.start
      Memintro.mark
      more = Array.new(3_000) { |i| "y" * (i % 900) }
      kept.clear
      GC.start
      Memintro.stop
      compare(BLOCKS)
    RUBY
    expect(text).to match(/^3 of \d+ call sites, by live_bytes:\n\n +live +share +blocks .*older than 1 GC  call site$/)
    expect(text).to include("  -e:", "more call sites, live ", "note: Tracking is off")
  end

  it "is the same from process and JSON with native callers" do
    text = differences(<<~RUBY)
      require "zlib"
      Memintro.start
      kept = Array.new(40_000) { |i| "z" * (i % 700) }
      open = Array.new(500) { Zlib::Deflate.new.tap { |one| one.deflate("x" * 50_000) } }
      Memintro.untracked { compare(BLOCKS) }
    RUBY
    expect(text).to match(/^    via .* of allocations \(\d+ of \d+ samples\)$/).and include("started live")
  end

  it "is the same from process and JSON for few and many samples" do
    [[500, ""], [500, "Memintro.mark"], [200_000, ""], [50_000_000, ""]].each do |distance, mark|
      text = differences(<<~RUBY)
        Memintro.start(mode: :sampled, sample_bytes: #{distance})
        kept = (1..200).map(&MAKE)
        GC.start
        #{mark}
        more = Array.new(3_000) { |i| "y" * (i % 900) }
        kept.clear
        GC.start
        Memintro.untracked { compare(BLOCKS) }
      RUBY
      expect(text).to include("sampled mode (", "note: Figures with ~ are estimated")
    end
  end

  # Lines that several callers call, at several depths.
  CALLERS = <<~'RUBY'
    def leaf(i) = (KEPT << "s" * (i % 500 + 700)) && (KEPT << [i])
    def deep(i, depth) = depth.zero? ? leaf(i) : deep(i, depth - 1)
    def block(i) = [i].each { |j| leaf(j) }
    KEPT = []
    WORK = -> { 300.times { |i| i % 3 == 0 ? deep(i, i % 9) : block(i) } }
  RUBY

  it "is the same from process and JSON for whole stacks, exact and sampled" do
    ["", ", mode: :sampled, sample_bytes: 700"].each do |mode|
      text = differences(<<~RUBY)
        #{CALLERS}
        Memintro.start(stack_depth: 9#{mode})
        kept = (1..200).map(&MAKE)
        WORK.call
        Memintro.mark
        WORK.call
        Memintro.stop
        compare([:mean_lifespan, *BLOCKS])
      RUBY
      expect(text).to match(/^Their heaviest callers:\n-e:\d+\n +[\d.]+ KiB  \S.*-e:\d+ < .* \d more$/)
    end
  end

  it "is the same from process and JSON for objects, all and sampled, with whole stacks and without" do
    figures = "%i[live_objects object_bytes object_allocations retained_bytes]"
    [true, :sampled].product(["", ", stack_depth: 9", ", mode: :sampled, sample_bytes: 700"]).each do |objects, more|
      text = differences(<<~RUBY)
        #{CALLERS}
        Memintro.start(objects: #{objects.inspect}#{more})
        kept = (1..200).map(&MAKE)
        4.times { WORK.call }
        GC.start
        Memintro.untracked { compare(#{figures} + BLOCKS) }
      RUBY
      expect(text).to match(/^ *retained +objects +in slots +live +share /)
      expect(text.lines.grep(/^note: Figures with ~/).size).to eq([objects, more].join.include?("sampled") ? 1 : 0)
      expect(text).not_to include("~~")
    end
  end

  it "is the same from process and JSON without tracking, and in colour" do
    text = differences(<<~'RUBY')
      class StringIO
        def tty? = true
      end
      compare(BLOCKS)
      Memintro.start
      kept = Array.new(10) { |i| "x" * 100 }
      Memintro.stop
      compare([:mean_lifespan, *BLOCKS])
    RUBY
    expect(text).to include("Nothing has been tracked in this process.", "\e[33mnote: \e[0mTracking is off")
      .and match(/\e\[2m *live +share .*call site\e\[0m$/)
  end

  it "names a program and files of any bytes alike" do
    text = differences(<<~'RUBY')
      $0 = "odd\e[31m\xff name"
      Memintro.start
      names = ["/usr/lib/ruby/3.1.0/json.rb", "/app/a\u202eb.rb", "#{Dir.pwd}/mine.rb", "/x/gems/a/b.rb", "<internal:x>",
               "/" + "é" * 150, "/a/bundler/gems/b-1/gems/c-2/d.rb", "/bad\xff.rb", "/usr/ruby/site_ruby/x.rb"]
      kept = names.map { |name| eval("Array.new(50) { |j| 'x' * 999 }", nil, name, 7) }
      Memintro.stop
      puts both(nil, :live_bytes).first
      compare(%i[live_bytes])
    RUBY
    expect(text).to include("odd\\x1B[31m\\xFF name\n", "  ruby/3.1.0/json.rb:7\n", "  /app/a\\xE2\\x80\\xAEb.rb:7\n",
                            "  mine.rb:7\n", "  c-2/d.rb:7\n", "  /bad\\xFF.rb:7\n")
  end

  it "has 20 call sites by default, and JSON has all" do
    result = run_ruby(code: <<~'RUBY').must_succeed
      require "json"
      require "stringio"
      Memintro.start
      kept = (1..25).map { |line| eval("'x' * 9_999", nil, "/many.rb", line) }
      Memintro.stop
      texts = [{}, { format: :json }, { format: "json", top: 2 }, { top: nil }].map do |options|
        StringIO.new.tap { |io| Memintro.report(io, **options) }.string
      end
      shown = ->(text) { text.start_with?("{") ? JSON.parse(text)["call_sites"].size : text[/^(\d+) of \d+ call/, 1].to_i }
      puts JSON.generate(texts.map(&shown))
    RUBY
    expect(result.json).to match([20, be >= 25, 2, be >= 25])
  end
end
