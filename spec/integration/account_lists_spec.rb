# frozen_string_literal: true

require_relative "../spec_helper"

# Without Ruby's heap, free memory is counted by malloc's lists of free chunks. A walk over all chunks of the same
# frozen copy is its twin: both must say the same, to the byte.
RSpec.describe "an account by lists of free chunks", :vm, :vm_long do
  TWINS = <<~'RUBY'
    LIBC = Fiddle.dlopen(nil)
    MALLOC = Fiddle::Function.new(LIBC["malloc"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
    FREE = Fiddle::Function.new(LIBC["free"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOID)
    Memintro.account(ruby: false)
    # What the lists say, and what the walk says of the same instant.
    def twins
      lines = Memintro::Native.account(false, true, 2, 20).first.b.lines(chomp: true)
      by_lists, by_walk = lines.grep(/^(?:arena|bin|tcache\S*|fast\S*|broken|by_lists) /).slice_after("by_lists 1").to_a
      { lists: by_lists - ["by_lists 1"], walk: by_walk, arenas: by_lists.grep(/^arena/).size,
        free: by_lists.grep(/^arena/).sum { |line| line.split[4].to_i } }
    end
  RUBY

  def twins(code)
    run_ruby(code: TWINS + code, requires: %w[json fiddle memintro]).must_succeed.json
  end

  def expect_equal(found)
    expect(found.map { |one| one[:lists] }).to eq(found.map { |one| one[:walk] })
    expect(found.map { |one| one[:lists].map { |line| line[/\w+/] }.uniq })
      .to all(include("arena", "bin", "tcache", "tcache_bin", "fast"))
  end

  # On other processors, threads' caches are not found so.
  before { skip "not on this processor" unless RbConfig::CONFIG["host_cpu"] == "x86_64" }

  it "says what a walk says after random allocations and frees" do
    found = twins(<<~'RUBY')
      random = Random.new(19)
      blocks = []
      found = Array.new(8) do |round|
        if round.even?
          4000.times { blocks << MALLOC.call(random.rand < 0.02 ? random.rand(100_000) : random.rand(1200)) }
        else
          3500.times { FREE.call(blocks.delete_at(random.rand(blocks.size))) }
        end
        twins
      end
      puts JSON.generate(found)
    RUBY
    expect_equal(found)
    expect(found.map { |one| one[:free] }.max).to be > 1_000_000
  end

  it "says what a walk says of threads that are alive, have ended, or ask themselves" do
    found = twins(<<~'RUBY')
      # 90 MiB in one thread take two heaps of its arena.
      Thread.new do
        blocks = Array.new(90_000) { MALLOC.call(1000) }
        blocks.each_with_index { |block, place| FREE.call(block) unless (place % 7).zero? }
      end.join
      held = Array.new(6) { Thread.new { Thread.current[:kept] = Array.new(500) { |n| "y" * (30 + n) }; sleep } }
      sleep(0.01) until held.all?(&:stop?)
      inside = Thread.new { twins }.value
      held.first(3).each(&:kill).each(&:join)
      reader, writer = IO.pipe
      Process.wait(fork { writer.write(JSON.generate(twins)) && exit!(0) })
      writer.close
      puts JSON.generate([twins, inside, JSON.parse(reader.read)])
    RUBY
    expect_equal(found.take(2))
    # The stack of a thread that the fork did not copy may serve a new thread, which begins with an empty cache. What
    # was in the former one is lost to malloc, and only a walk finds it.
    (by_lists, arenas), (by_walk, same) = found[2].values_at(:lists, :walk).map do |lines|
      caches, rest = lines.partition { |line| line.start_with?("tcache") }
      [caches.first.scan(/\d+/).map(&:to_i), rest]
    end
    expect(arenas).to eq(same).and have_attributes(size: be > 2)
    expect(by_walk.zip(by_lists).map { |all, some| all - some }).to match([0..5, 0..500, 0..(64 << 10), 0..(64 << 10)])
    expect(found.map { |one| one[:arenas] }).to all(be >= 2)
    expect(found.map { |one| one[:free] }).to all(be > 60_000_000)
  end

  # Pieces of a heap of 32 MiB and more are walked at the same time.
  it "says what a walk over all pieces of a large heap says" do
    found = twins(<<~'RUBY')
      random = Random.new(23)
      blocks = Array.new(60_000) { MALLOC.call(100 + random.rand(1900)) }
      blocks.shuffle!(random: random)
      found = Array.new(3) { blocks.pop(15_000).each { |block| FREE.call(block) } && twins }
      puts JSON.generate(found)
    RUBY
    expect_equal(found)
    expect(found.map { |one| one[:free] }).to match([be > 12_000_000, be > 25_000_000, be > 40_000_000])
  end

  # Where a piece begins is guessed by what looks like heads of chunks. Here all contents do.
  it "says what a walk over pieces that begin within chunks says" do
    found = twins(<<~'RUBY')
      random = Random.new(29)
      contents = [0, 49].pack("Q2") * 6400
      blocks = Array.new(1200) do
        MALLOC.call(90_000 + (16 * random.rand(700))).tap { |block| Fiddle::Pointer.new(block.to_i)[0, 90_000] = contents }
      end
      found = Array.new(3) do |round|
        blocks.each_with_index { |block, place| FREE.call(block) if place % 4 == round }
        twins
      end
      puts JSON.generate(found)
    RUBY
    expect_equal(found)
    expect(found.map { |one| one[:free] }).to match([be > 25_000_000, be > 50_000_000, be > 75_000_000])
  end

  # The way back is torn, which malloc itself looks at only where it takes a chunk out: not in the middle of a list.
  it "leaves a torn list to the walk, which says the same as ever" do
    result = run_ruby(code: TWINS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      blocks = Array.new(3000) { MALLOC.call(5000) }
      blocks.each_with_index { |block, place| FREE.call(block) if place.odd? }
      # Has malloc sort them.
      MALLOC.call(90_000)
      take = ->(ways) { Memintro::Native.account(false, true, ways, 20).first.b.lines(chomp: true).grep(/^(?:arena 0|by_lists)/) }
      whole = take[0]
      torn = Fiddle::Pointer.new(blocks[1501].to_i + 8, 8)
      before = torn[0, 8]
      after = [blocks[1500].to_i].pack("Q")
      GC.disable
      torn[0, 8] = after
      damaged = take[0]
      torn[0, 8] = before
      puts JSON.generate(whole: whole, damaged: damaged, again: take[0])
    RUBY
    free = result.transform_values { |lines| lines.find { |line| line.start_with?("arena") }.split[4].to_i }
    expect(result.transform_values { |lines| lines.grep(/by_lists/) })
      .to eq(whole: ["by_lists 1"], damaged: ["by_lists 0"], again: ["by_lists 1"])
    expect(free[:whole]).to be > 5_000_000
    expect(free[:damaged]).to be_within(300_000).of(free[:whole])
  end
end
