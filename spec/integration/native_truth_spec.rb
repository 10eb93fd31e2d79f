# frozen_string_literal: true

require "spec_helper"

# A native program counts for itself what it asks of the allocator, and compares with the hook's figures.
RSpec.describe "The hook's figures against a native program's own" do
  exact = { differences: "", wrong_sites: 0, wrong_threads: 0, corrupt: 0, totals_agree: true, missed_frees: 0,
            dropped: 0 }.freeze

  { preloaded: 0, live: 1 }.each do |way, origin|
    it "agree to the byte and the count over a million operations on four threads, #{way}" do
      expect(truth(operations: 1_000_000,
                   way: way)).to include(**exact, operations: 1_000_000, sites: 21, origin: origin)
    end

    it "agree over ten million operations, #{way}", :long, deadline_seconds: 900 do
      # Some ten seconds of CPU time, which take ten times as long on a busy machine.
      expect(truth(operations: 10_000_000, way: way, seed: 7, deadline_seconds: 900))
        .to include(**exact, operations: 10_000_000)
    end
  end

  it "agree for one thread and for sixteen" do
    [[1, 2], [16, 3]].each do |threads, seed|
      expect(truth(operations: 200_000, threads: threads, seed: seed, way: :live)).to include(exact)
    end
  end

  %i[now no_plt no_pie].each do |variant|
    it "agree for a program linked #{variant}, either way" do
      TruthDriver::WAYS.each do |way|
        expect(truth(operations: 100_000, way: way, variant: variant, seed: 5)).to include(exact)
      end
    end
  end

  # From 3.21 on, it brings a reallocarray for any allocator.
  it "agree under Valgrind, which finds nothing to say", :own_allocator do
    skip "valgrind is not installed" unless system("valgrind", "--version", out: File::NULL, err: File::NULL)
    # What newer ones object to besides is the truth program's own: any size for any alignment, and realloc to nothing.
    objects = Gem::Version.new(`valgrind --version`[/\d+(?:\.\d+)*/]) >= Gem::Version.new("3.22")
    suppressions = ["valgrind", *("valgrind_aligned" if objects)].map do |name|
      "--suppressions=#{File.join(__dir__, "../fixtures/programs/#{name}.supp")}"
    end
    tolerant = [*suppressions, *("--show-realloc-size-zero=no" if objects)]
    # The search for leaks at the end goes through all that the hook has reserved: half a minute, and no finding.
    command = ["valgrind", "-q", "--leak-check=no", "--vgdb=no", *tolerant, "--error-exitcode=99",
               "--soname-synonyms=somalloc=nouserintercepts", program("truth.cc"), "5000", "4", "1"]
    result = run_command(*command, way: :live, env: { "TRUTH_WITHOUT_FAILURES" => "1" })
    expect([result.status.exitstatus, result.stderr]).to eq [0, ""]
    expect(result.json).to include(exact.except(:differences))
  end

  it "agree with jemalloc behind the hook, C++ included" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    preload = { "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" }
    expect(truth(operations: 300_000, way: :preloaded, env: preload)).to include(**exact, origin: 0)
    expect(truth(operations: 300_000, way: :live, env: { "LD_PRELOAD" => jemalloc })).to include(**exact, origin: 1)
  end

  describe "of functions that hardly any program calls" do
    deletes_and_pvalloc = {
      nothrow: [50, 50, 122_500, 122_500], nothrow_array: [50, 40, 122_550, 78_040],
      nothrow_aligned: [50, 30, 122_600, 43_560], nothrow_array_aligned: [50, 20, 122_650, 19_060],
      whole_pages: [50, 10, 122_700, 4_540], missed_frees: 0, dropped: 0
    }.freeze

    TruthDriver::WAYS.each do |way|
      it "agree for each nothrow delete and pvalloc, #{way}" do
        expect(native(program("rarely_called.cc"), way: way)).to include(deletes_and_pvalloc)
      end

      # Its deletes do not come back to a function that is counted anyhow, as the C++ library's and jemalloc's do.
      it "agree for each nothrow delete and pvalloc of tcmalloc, #{way}", :own_allocator do
        tcmalloc = NativePrograms.tcmalloc or skip "libtcmalloc-minimal4 is not installed"
        preload = way == :preloaded ? "#{Subprocess::HOOK}:#{tcmalloc}" : tcmalloc
        expect(native(program("rarely_called.cc"), way: way, env: { "LD_PRELOAD" => preload }))
          .to include(deletes_and_pvalloc)
      end

      %i[lazy now no_plt].each do |variant|
        it "agree for jemalloc's own interface, #{way}, in a program linked #{variant}", :own_allocator do
          jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
          linked = program("mallocx.c", variant: variant, libraries: [jemalloc])
          [[], ["paused"]].each do |arguments|
            expect(native(linked, *arguments, way: way)).to include(
              wrong: 0, by_mallocx: [100, 85, 100_000, 85_000], by_rallocx: [40, 20, 120_000, 60_000],
              by_xallocx: [30, 10, 30_250, 10_080], missed_frees: 0, dropped: 0
            )
          end
        end
      end
    end
  end
end
