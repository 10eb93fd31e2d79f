# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A worker that makes previews grows to gigabytes. Nothing keeps an image, and ObjectSpace says 40 bytes for each.
RSpec.describe "the story of images that wait for the collector", :listening do
  let(:story) { File.join(Subprocess::ROOT, "spec/fixtures/stories/rmagick_garbage.rb") }

  before do
    skip "this Ruby has no rmagick" unless run_ruby(code: 'require "rmagick"', requires: []).success?
  end

  let(:asked_for) do
    lines = [10, 11].map { |line| Regexp.escape("#{story}:#{line}") }
    /\A(?:2\d|30)\.\d MiB that libMagickCore\S* asked for at #{lines.join(' and ')} /
  end

  # The program, and the end by which previews are asked for.
  def worker(requires, first)
    # Without a collection, as if Ruby had much memory for objects. The first one would come by chance.
    start_worker("#{first}GC.disable; load #{story.dump}", requires: requires)
  end

  it "says which library, which lines, which objects, and that nothing holds them" do
    program, input = worker(["memintro"], "Memintro.listen; ")
    plain, plain_input = worker([], "")
    expect([program.line, plain.line]).to all(eq("at first: no previews"))
    memintro("start", program.pid).must_succeed
    expect(serve(program, input)).to eq(serve(plain, plain_input))

    kept = memintro("leaks", program.pid, "--no-gc").must_succeed.stdout
    expect(kept.lines.first).to match(asked_for)
      .and match(/came while it tracked, and are still there: 20 objects of class Magick::Image own them/)
    expect(kept.lines[1]).to include("how many of them are garbage that waits for the collector: memintro holders ")

    text = memintro("leaks", program.pid, "--track", "0.1").must_succeed.stdout
    expect(text.lines.first).to match(asked_for)
      .and match(/rmagick_garbage\.rb:11 were garbage until this search had it collected: /)
      .and match(/: (19|20) objects of class Magick::Image, which nothing held, owned them\.$/)
    expect(text.lines[1]).to start_with("Their extension does not tell Ruby their size, so Ruby collects too seldom.")
      .and include("destroy!", "GC.start", "rb_gc_adjust_memory_usage")
    expect(text.lines.first(4).join).not_to include("--track")
    expect(serve(program, input)).to eq(serve(plain, plain_input))
  ensure
    [input, plain_input].compact.each(&:close)
  end
end
