# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A worker that makes previews grows to gigabytes. Nothing keeps an image, and ObjectSpace says 40 bytes for each. With
# OpenSSL's numbers it is the same, also on Rubies that have no rmagick.
RSpec.describe "the story of objects of a library that wait for the collector", :listening do
  # Allocations of the library, by line.
  { "rmagick" => ["previews", "libMagickCore", "Magick::Image", [10, 11]],
    "openssl" => ["products", "libcrypto", "OpenSSL::BN", [12, 11]] }.each do |name, (made, library, owner, lines)|
    describe "with #{name}" do
      let(:story) { File.join(Subprocess::ROOT, "spec/fixtures/stories/#{name}_garbage.rb") }

      before { skip "this Ruby has no #{name}" unless run_ruby(code: "require #{name.dump}", requires: []).success? }

      let(:asked_for) do
        places = lines.map { |line| Regexp.escape("#{story}:#{line}") }
        /\A(?:2\d|30)\.\d MiB that #{library}\S* asked for at #{places.join(" and ")} /
      end

      # The program, and the end by which work is asked for.
      def worker(requires, first)
        # Without a collection, as if Ruby had much memory for objects. The first one would come by chance.
        start_worker("#{first}GC.disable; load #{story.dump}", requires: requires)
      end

      it "says which library, which lines, which objects, and that nothing holds them" do
        program, input = worker(["memintro"], "Memintro.listen; ")
        plain, plain_input = worker([], "")
        expect([program.line, plain.line]).to all(eq("at first: no #{made}"))
        memintro("start", program.pid).must_succeed
        expect(serve(program, input)).to eq(serve(plain, plain_input))

        kept = memintro("leaks", program.pid, "--no-gc").must_succeed.stdout
        expect(kept.lines.first).to match(asked_for)
          .and match(/came while it tracked, and are still there: 20 objects of class #{owner} own them/)
        expect(kept.lines[1]).to include("how many of them are garbage that waits for the collector: memintro holders ")

        text = memintro("leaks", program.pid, "--track", "0.1").must_succeed.stdout
        expect(text.lines.first).to match(asked_for)
          .and match(/#{name}_garbage\.rb:#{lines.last} were garbage until this search had it collected: /)
          .and match(/: (19|20) objects of class #{owner}, which nothing held, owned them\.$/)
        expect(text.lines[1])
          .to start_with("Their extension does not tell Ruby their size, so Ruby collects too seldom.")
          .and include("destroy!", "GC.start", "rb_gc_adjust_memory_usage")
        expect(text.lines.first(4).join).not_to include("--track")
        expect(serve(program, input)).to eq(serve(plain, plain_input))
      ensure
        [input, plain_input].compact.each(&:close)
      end
    end
  end
end
