# frozen_string_literal: true

require_relative "../spec_helper"

# The account must find the known use of memory that spec/fixtures/scripts/account_scenario.rb makes grow.
RSpec.describe "an account of known growth", :vm do
  # The row that must have grown most.
  GUILTY = { "c_leak" => :malloc_native, "methods" => :malloc_iseqs, "fragments" => :malloc_free,
             "hash" => :malloc_ruby_objects, "mapping" => :anonymous, "threads" => :malloc_free,
             "objects" => :ruby_heap_live, "file" => :mapped_files, "survivors" => :ruby_heap_free }.freeze
  WORDS = { "c_leak" => "malloc memory that no Ruby object counts as its own: a leak in C code",
            "fragments" => "memory that malloc has free but keeps: fragmentation. Jemalloc may help",
            "mapping" => "memory mapped past malloc", "survivors" => "free slots on pages of Ruby's heap" }.freeze
  PRELOADED_JEMALLOC = Dir["/usr/lib/*-linux-gnu/libjemalloc.so.2"].first
  # jemalloc gives free memory back within ten seconds, which a busy machine may need to count it.
  ON_JEMALLOC = { "LD_PRELOAD" => PRELOADED_JEMALLOC,
                  "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }.freeze

  def account_of(scenario, mebibytes, env = {})
    script = File.join(Subprocess::SCRIPTS, "account_scenario.rb")
    command = [RbConfig.ruby, "-I", Subprocess::LIB, script, scenario, mebibytes.to_s]
    Subprocess.run_command(*command, env: env, deadline_seconds: 900).must_succeed.json
  end

  def expect_guilty(scenario, mebibytes, env = {})
    found = account_of(scenario, mebibytes, env)
    expect(found[:sum]).to eq(found[:rss])
    expect(found[:least]).to be >= 0
    expect(found[:unattributed]).to be <= found[:rss] / 100
    # The copy was made some milliseconds before; jemalloc gives memory back by itself meanwhile.
    expect((found[:rss] - found[:kernel]).abs).to be < 3 << 20 if found[:allocator] == "glibc"
    growth = found[:growth]
    expect(growth.max_by(&:last).first).to eq(GUILTY.fetch(scenario)), growth.inspect
    expect(growth.fetch(GUILTY.fetch(scenario))).to be > (mebibytes << 20) * 0.35
    found
  end

  %w[c_leak fragments mapping survivors].each do |scenario|
    it "names #{GUILTY[scenario]} for #{scenario}" do
      found = expect_guilty(scenario, 60)
      expect(found[:notes]).to eq([])
      expect(found[:verdict].first).to match(/\A\d+\.\d% of \d+\.\d MiB is /).and include(WORDS.fetch(scenario))
    end
  end

  it "names the guilty row with the tracker on" do
    expect_guilty("hash", 50, "TRACKED" => "1")
  end

  it "names the guilty row on jemalloc" do
    skip "no jemalloc here" unless PRELOADED_JEMALLOC

    found = expect_guilty("c_leak", 100, ON_JEMALLOC)
    expect(found[:allocator]).to eq("jemalloc")
  end

  GUILTY.keys.product([100, 1024], [nil, "1"], %w[glibc jemalloc]).each do |scenario, mebibytes, tracked, allocator|
    it "names the guilty row for #{scenario}, #{mebibytes} MiB, #{allocator}, tracker #{tracked ? 'on' : 'off'}", :long,
       deadline_seconds: 1000 do
      skip "no jemalloc here" if allocator == "jemalloc" && PRELOADED_JEMALLOC.nil?

      env = allocator == "jemalloc" ? ON_JEMALLOC : {}
      found = expect_guilty(scenario, mebibytes, { "TRACKED" => tracked, **env })
      expect(found[:allocator]).to eq(allocator)
    end
  end
end
