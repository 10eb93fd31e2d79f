# frozen_string_literal: true

require_relative "../spec_helper"

# Checks of a native gem in its tests, run by a real rake with a real Minitest and RSpec. planted.c has the mistakes.
RSpec.describe "Memintro::MemCheck" do
  PLANTED = File.join(NativePrograms::MODULES, MemChecks::PLANTED)

  before do
    skip "only on x86-64" unless RUBY_PLATFORM.start_with?("x86_64")
    skip "no minitest here" if Gem::Specification.find_all_by_name("minitest").empty?
  end

  # `planted.c:42`, where this text is after the line that begins this function.
  def at(function, text)
    lines = File.readlines(PLANTED)
    from = lines.index { |line| line.match?(/\b#{function}\(.*\)$/) }
    Regexp.escape("planted.c:#{from + lines.drop(from).index { |line| line.include?(text) } + 1}")
  end

  def clean(env: {}, **options, &block)
    mem_check(env: { "TESTS" => "test/clean_test.rb", **env }, **options, &block)
  end

  def own(text, env: {}, **options)
    mem_check(env: { "TESTS" => "test/own_test.rb", **env }, **options) { |folder| test_of(folder, text) }
  end

  # Of the first finding like this, how many blocks are lost, and how many are live: a stale word somewhere in memory
  # may hold a few that are lost.
  def blocks(told, pattern)
    text = told.text.split("\n\n").grep(pattern).first.to_s.delete(",")
    lost = text[/^\d+\. (\d+) block/, 1].to_i
    [lost, lost + text[/^ +(\d+) more blocks? of this stack/, 1].to_i]
  end

  # A block whose address somebody has taken as a key of a table, or the like, looks held.
  def mostly(count) = match([be_between((count * 0.8).floor, count), count])

  it "names each planted mistake with its blocks, bytes, function and line of C, and nothing else" do
    told = mem_check
    expect(told.first)
      .to match(/\Amem_check: 8 findings in planted\.so: \d+ blocks \(.* KiB\) lost\. The tests passed\.\z/)
    lost = "that nothing points to from"
    place = "\\(#{at("kept_alloc", "calloc")}\\)"
    expect(told.titles).to contain_exactly(
      %r{\A40 blocks \(4\.7 KiB\) of planted/kept, which has no free function, from kept_alloc #{place}\z},
      /\A\d+ blocks \(.*\) #{lost} lose \(#{at("lose", "malloc")}\)\z/, /\A\d+ blocks \(.* B\) #{lost} lose \(.*\)\z/,
      /\A\d+ blocks \(.*\) #{lost} leak_ruby \(#{at("leak_ruby", "xmalloc")}\)\z/,
      /\A\d+ blocks \(.*\) #{lost} lose_pair \(#{at("lose_pair", "malloc")}\)\z/,
      /\A\d+ blocks \(.*\) that only leaked blocks point to from inner \(#{at("inner", "calloc")}\)\z/,
      /\A7 addresses registered and never taken back by hold \(#{at("hold", "rb_gc_register_address")}\)\z/,
      /\Aplanted\.so\(.*\) registered 2 times by again \(#{at("again", "rb_gc_register_address")}\)\z/
    )
    expect(blocks(told, /\A\d+\. .* lose .* leak \(/m)).to mostly(50)
    expect(blocks(told, /from leak_ruby/)).to mostly(20)
    expect(blocks(told, /from lose_pair/)).to mostly(10)
    expect(blocks(told, /lose_outside/)).to mostly(10)
    expect(told.text).to include("called at test/planted_test.rb:19 (30), test/planted_test.rb:20 (10)",
                                 "      lose_outside (planted.c:", "called at (outside of Ruby):1")
    expect(told.status).to eq 3
  end

  it "finds nothing where all is freed, held by a cache, or marked", :aggregate_failures do
    told = clean
    expect(told.first)
      .to match(/\Amem_check: nothing found in planted\.so, whose stacks have \d+ live blocks\. The tests passed\.\z/)
    expect([told.status, told.titles]).to eq [0, []]
    expect(told.out).to include("2 runs, 2 assertions, 0 failures")
  end

  it "keeps the status of tests that fail, and says so beside the findings" do
    failed = clean(env: { "FAIL" => "1" })
    expect([failed.status, failed.first]).to match [1, /nothing found in .* The tests failed \(status 1\)\.\z/]
    both = own("Class.new(Minitest::Test) { define_method(:test_a) { Planted.leak(9); flunk } }")
    expect([both.status, both.first]).to match [1, /\Amem_check: 1 finding in .* The tests failed \(status 1\)\.\z/]
  end

  it "follows what a thread allocates while others read figures and fork" do
    told = own(<<~RUBY)
      class TestThreads < Minitest::Test
        def test_threads
          other = Thread.new { 10.times { Planted.leak_more(10_000) } }
          read = 0
          while other.alive?
            Memintro.top(1)
            Process.wait(fork { exit!(0) }) if (read += 1) % 20 == 0
          end
        end
      end
    RUBY
    lost, all = blocks(told, /from lose .*lose_more/m)
    expect(all).to eq 100_000
    expect(lost).to be > 99_900
    expect(told.status).to eq 3
  end

  it "says so where a process of the tests cannot write what it has found" do
    told = own(<<~RUBY)
      trap("XFSZ", "IGNORE")
      Minitest.after_run { Process.setrlimit(:FSIZE, 16) }
      Class.new(Minitest::Test) { define_method(:test_a) { assert Planted.leak(9) } }
    RUBY
    expect([told.status, told.first]).to match [4, /no verdict on .* could not write what it has found .* disk full\?/]
  end

  it "keeps it where a file of the check cannot be written, and has none of its own then" do
    settings = { junit: "/proc/self/status/junit.xml" }
    told = [{ "FAIL" => "1" }, {}].map { |env| clean(settings: settings, env: env) }
    expect(told.map(&:status)).to eq [1, 4]
    expect(told.map(&:text)).to all(match(/^mem_check: no verdict: .*junit\.xml/))
  end

  it "also runs specs" do
    skip "no rspec here" if Gem::Specification.find_all_by_name("rspec-core").empty?
    told = mem_check("mem_check_specs", env: { "SPECS" => "1" })
    expect(told.out).to include("3 examples, 0 failures")
    expect([told.titles.size, blocks(told, /lose \(/), told.status]).to match [1, mostly(50), 3]
    expect(mem_check("mem_check_specs", env: { "SPECS" => "1", "FAIL" => "1" }).status).to eq 1
  end

  it "runs by the Rakefile that docs/mem_check.md shows" do
    block = Documents.blocks("ruby Rakefile").first
    told = mem_check do |folder|
      FileUtils.rm(File.join(folder, "test", "clean_test.rb"))
      File.write(File.join(folder, "Rakefile"), "#{block.code}task(:compile) { puts \"compiled\" }\n")
    end
    expect([told.out[/^compiled$/], told.titles.size, told.status]).to eq ["compiled", 8, 3]
  end

  it "looks at all libraries below the folder without a name, and at the right one of several" do
    expect(mem_check(settings: { binary_name: nil }).titles.size).to eq 8
    expect(mem_check(settings: { binary_name: %w[planted.so] }).titles.size).to eq 8
  end

  it "accepts what a baseline has, and fails for what is new" do
    settings = { baseline: "baseline.json" }
    first = own("Class.new(Minitest::Test) { define_method(:test_a) { assert Planted.leak(9) } }",
                settings: { **settings, update_baseline: true })
    expect([first.status, first.first]).to match [0, /nothing found/]
    expect(JSON.parse(first.read("baseline.json"))["accepted"].map { |row| row["title"] }).to match [/from lose/]
    again = mem_check(settings: settings, env: { "TESTS" => "test/own_test.rb" })
    expect([again.status, again.text]).to match [0, /^1 finding accepted by baseline\.json$/]
    more = mem_check(settings: settings)
    expect([more.status, more.titles.size, more.text]).to match [3, be_between(6, 7), /^1 finding accepted by/]
    gone = clean(settings: settings)
    expect([gone.status, gone.text]).to match [0, /^1 accepted finding did not come up/]
  end

  it "repeats tests if asked to, and names blocks that grow with each run, but no cache that has a bound" do
    text = <<~RUBY
      class OwnTest < Minitest::Test
        def test_grows = assert([Planted.append, Planted.append, Planted.append])
        def test_is_bounded = assert(Planted.remember)
        def test_is_clean = assert([Planted.clean(5), Planted::Freed.new])
      end
    RUBY
    told = own(text, settings: { repeat: true })
    words = "that something holds, more each time a test runs, from append"
    expect(told.titles).to match [/\A\d+ blocks \(.* KiB\) #{words} \(#{at("append", "calloc")}\)\z/]
    expect(told.text).to match(/^ +3\.0 blocks and 336 bytes each time OwnTest#test_grows runs$/)
    expect([told.status, told.out]).to match [3, /3 runs, 3 assertions, 0 failures/]
    expect(own(text).status).to eq 0
  end

  it "also repeats examples of RSpec" do
    skip "no rspec here" if Gem::Specification.find_all_by_name("rspec-core").empty?
    told = mem_check("mem_check_specs", settings: { repeat: true }, env: { "SPECS" => "1" }) do |folder|
      text = 'require "planted"; RSpec.describe(Planted) { it("grows") { expect(Planted.append).to be_any } }'
      File.write(File.join(folder, "spec", "planted_spec.rb"), text.sub("be_any", "eq Planted"))
    end
    expect([told.titles.size, told.text]).to match [1, /^ +1\.0 blocks and 112 bytes each time Planted grows runs$/]
    expect(told.out).to include("1 example, 0 failures")
  end

  it "reads suppressions of Valgrind's form" do
    supp = <<~SUPP
      # of loss
      {
         lost
         Memcheck:Leak
         match-leak-kinds: definite
         fun:malloc
         fun:lo?e
         ...
         fun:leak
      }
      {
         without a free function
         Memcheck:Leak
         ...
         obj:*/planted.so
         ...
         fun:rb_class_new*
      }
      {
         other tool
         Helgrind:Race
         fun:*
      }
    SUPP
    told = mem_check(settings: { suppressions: ["own.supp"] }) do |folder|
      File.write(File.join(folder, "own.supp"), supp)
    end
    expect([told.status, told.titles.size]).to eq [3, 6]
    expect(told.text).to match(/^2 findings suppressed$/)
  end

  it "writes JUnit, SARIF and annotations" do
    told = mem_check(settings: { junit: "out/junit.xml", sarif: "out/sarif.json", annotations: true })
    junit = told.read("out/junit.xml")
    head = %(<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="mem_check" tests="8" )
    expect(junit).to start_with(head), told.text
    expect(junit).to include('failures="8" errors="0">')
    expect(junit.scan(/<testcase .* file=".*planted\.c">/).size).to eq 8
    sarif = JSON.parse(told.read("out/sarif.json"))
    results = sarif.dig("runs", 0, "results")
    expect([sarif["version"], results.size, results.map { |one| one["ruleId"] }.tally])
      .to eq ["2.1.0", 8, { "no_free" => 1, "leak" => 4, "indirect" => 1, "registered" => 1, "registered_twice" => 1 }]
    place = results.first.dig("locations", 0, "physicalLocation")
    expect([place.dig("artifactLocation", "uri"), place.dig("region", "startLine")])
      .to match [%r{\Afile:///.*planted\.c\z}, Integer]
    expect(told.out.scan(/^::error file=.*planted\.c,line=\d+,title=memory check::/).size).to eq 8
    none = clean(settings: { junit: "out/none.xml" }).read("out/none.xml")
    expect(none).to include('tests="1" failures="0" errors="0"')
  end

  it "gives no verdict, in words, when tests crash, leave by exit!, or load another library" do
    crashed = own("Class.new(Minitest::Test) { define_method(:test_a) { Planted.crash } }")
    expect([crashed.status, crashed.first])
      .to match [134, /\Amem_check: no verdict on planted\.so: 1 process of the tests ended by signal 6, .*6\.\z/]
    left = own("Class.new(Minitest::Test) { define_method(:test_a) { exit!(0) } }")
    expect([left.status, left.first]).to match [4, /no verdict on .*ended without its exit handlers \(exit!/]
    other = clean(settings: { binary_name: "nobody" })
    expect([other.status, other.first])
      .to match [4, /no verdict on nobody\.so: nobody\.so was never loaded by the tests\. Is binary.* planted\b/]
  end

  # A check that could not search must not read like one without findings.
  describe "when it could not look" do
    # A test, and what happens after all tests.
    def blinded(code, after: false, env: {})
      after_run = "Minitest.after_run { #{code} }" if after
      own(<<~RUBY, env: env)
        #{after_run}
        class OwnTest < Minitest::Test
          def test_a
            #{code unless after}
            assert Planted.clean(5)
          end
        end
      RUBY
    end

    it "gives no verdict if tests end memintro's tracking, or take its figures back" do
      stopped = blinded("Memintro.stop")
      expect([stopped.status, stopped.first])
        .to match [4, /no verdict on planted\.so: an allocation was not recorded: have the tests stopped memintro's/]
      cleared = blinded("Planted.clean(50); Memintro.clear")
      expect([cleared.status, cleared.first])
        .to match [4, /no verdict .* [\d,]+ allocations of the libraries could not be kept\./]
    end

    it "gives no verdict if native stacks have no room" do
      told = mem_check(env: { "MEMINTRO_MAX_SITES" => "100" })
      expect([told.status, told.first])
        .to match [4, /no verdict .* [\d,]+ allocations of the libraries could not be kept\./]
    end

    # Threads of C that run when the tests are over; `seconds`: for how long.
    def beside_running_threads(seconds)
      library = shared_module("register_holder.c", flags: %w[-O1 -pthread])
      own(<<~RUBY)
        require "fiddle"
        HOLDER = Fiddle.dlopen(#{library.dump})
        def holder(name, *types) = Fiddle::Function.new(HOLDER[name], types, Fiddle::TYPE_INT)
        Minitest.after_run do
          holder("register_holder_begin", Fiddle::TYPE_SIZE_T, Fiddle::TYPE_INT, Fiddle::TYPE_INT).call(5_000, 2, 0)
          sleep 0.01 until holder("register_holder_ready").call == 2
          Thread.new { sleep(#{seconds}) && holder("register_holder_end").call }
        end
        Class.new(Minitest::Test) { define_method(:test_a) { assert Planted.leak(50) && Planted.leak_ruby(20) } }
      RUBY
    end

    it "looks again while other threads run, and says if it cannot be decided" do
      found = beside_running_threads(0.3)
      expect([found.status, found.first]).to match [3, /\Amem_check: 2 findings in planted\.so: [67]\d blocks .* lost/]
      never = beside_running_threads(600)
      words = /may hold [67]\d blocks of the libraries in registers, so whether they are lost is not known: end that/
      expect([never.status, never.first]).to match [4, /no verdict on planted\.so: a thread of the tests #{words}/]
    end

    it "gives no verdict if memory cannot be searched, and keeps what is known without" do
      # malloc never reads the head of the third of four adjacent blocks.
      written_over = <<~RUBY
        require "fiddle"
        Minitest.after_run do
          KEPT = Array.new(300) { Fiddle.malloc(5_000) }.sort.freeze
          four = KEPT.each_cons(4).find { |some| some.each_cons(2).all? { |a, b| b - a == 5_008 } }
          Fiddle::Pointer.new(four[2])[-8, 8] = [12].pack("J")
        end
      RUBY
      words = /leaks were not searched: glibc's chunks cannot be read to their end/
      told = own("#{written_over}Class.new(Minitest::Test) { define_method(:test_a) { assert Planted.leak(9) } }")
      expect([told.status, told.first]).to match [4, /no verdict on planted\.so: #{words}/]
      kept = own("#{written_over}Class.new(Minitest::Test) { define_method(:test_a) { assert Planted.again } }")
      expect([kept.status, kept.titles, kept.text])
        .to match [3, [/registered 2 times by again/], /^not complete: #{words}/]
    end

    it "gives no verdict if a process of the tests cannot load memintro" do
      told = own(<<~RUBY)
        Class.new(Minitest::Test) do
          define_method(:test_a) do
            assert system({ "MEMINTRO_CHECK_SECONDS" => "many" }, RbConfig.ruby, "-Ilib", "-rplanted", "-e", "0")
          end
        end
      RUBY
      expect([told.status, told.first])
        .to match [4, /no verdict on .* could not be followed: invalid value for Integer/]
    end
  end

  it "is not disturbed by forks, binary output, no tests at all, and other Rubies that tests start" do
    told = own(<<~RUBY)
      class OwnTest < Minitest::Test
        def test_forks
          Process.wait(fork { Planted.leak(5) })
          Process.wait(fork { exit!(3) })
          assert system(RbConfig.ruby, "-Ilib", "-rplanted", "-e", "Planted.leak(30)")
        end
        def test_binary
          $stdout.write("\\xff\\xfe\\0<xml>")
          $stderr.write("mem_check: \\e[31m\\xff")
          assert true
        end
      end
    RUBY
    expect([told.status, told.titles.size, blocks(told, /lose \(/)]).to match [3, 1, mostly(30)]
    expect(told.text)
      .to match(/^2 forked processes of the tests were not searched: what only a forked child loses is not found$/)
    stripped = own(<<~RUBY)
      class OwnTest < Minitest::Test
        def test_without_hook = assert(system({ "LD_PRELOAD" => nil }, RbConfig.ruby, "-Ilib", "-rplanted", "-e", "0"))
      end
    RUBY
    expect([stripped.status, stripped.first]).to match [4, /no verdict on .* has no hook in front, because LD_PRELOAD/]
    none = own("")
    expect([none.status, none.first]).to match [0, /nothing found/]
  end

  it "refuses settings, suppressions and baselines of another form in words" do
    expect(clean(settings: { suppressions: ["missing.supp"] }).first)
      .to match(/no verdict: suppressions missing\.supp: No such file/)
    { "{\n a\n Memcheck:Leak\n" => /own\.supp:1: the suppression that begins here has no \}/,
      "what" => /own\.supp:1: expected \{, and found what/,
      "{\n a\n b\n c\n}" => /own\.supp:3: expected a kind such as Memcheck:Leak/,
      "{\n a\n Memcheck:Leak\n \xff\e[31m\n}" => /own\.supp:4: expected fun:, obj:, src: or/ }.each do |text, words|
      told = clean(settings: { suppressions: ["own.supp"] }) do |folder|
        File.binwrite(File.join(folder, "own.supp"), text)
      end
      expect([told.status, told.first]).to match [4, words]
    end
    told = clean(settings: { baseline: "b.json" }) { |folder| File.write(File.join(folder, "b.json"), "[1") }
    expect([told.status, told.first]).to match [4, /the baseline b\.json is no JSON/]
    expect(clean(settings: { backend: :valgrind, valgrind: "no-valgrind" }).first)
      .to match(/no-valgrind is not installed: apt install valgrind/)
    expect(clean(settings: { colour: 1 }).text).to include("there is no setting colour of a memory check")
  end

  it "checks nothing under MEMINTRO_DISABLE" do
    told = clean(env: { "MEMINTRO_DISABLE" => "1" })
    expect([told.status, told.first]).to eq [0, "mem_check: nothing was checked, because MEMINTRO_DISABLE is set"]
  end

  describe "under Valgrind" do
    before { skip "no valgrind here" unless system("which", "valgrind", out: File::NULL) }

    it "reports the same leaks in the same form, and invalid reads and writes" do
      told = own(<<~RUBY, settings: { backend: :valgrind })
        class OwnTest < Minitest::Test
          def test_all = assert([Planted.leak(50), Planted.leak_ruby(20), Planted.read_freed, Planted.write_beyond])
        end
      RUBY
      expect(told.titles).to contain_exactly(
        /\A(?:49|50) blocks \(.*\) that nothing points to from lose \(#{at("lose", "malloc")}\)\z/,
        /\A(?:19|20) blocks \(.*\) that nothing points to from leak_ruby \(#{at("leak_ruby", "xmalloc")}\)\z/,
        /\Ainvalid read by read_freed \(#{at("read_freed", "INT2NUM(numbers[0])")}\)\z/,
        /\Ainvalid write by write_beyond \(#{at("write_beyond", "text[10]")}\)\z/
      )
      expect(told.status).to eq 3
    end

    it "says that the tests were ended by a signal", :long do
      told = own("Class.new(Minitest::Test) { define_method(:test_a) { Planted.crash } }",
                 settings: { backend: :valgrind })
      expect([told.status, told.first]).to match [134, /The tests were ended by signal 6\.\z/]
    end
  end
end
