# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# Beside what is live at a call site: what of it has outlived a collection. Counters tell, and a visit of all blocks has
# to say the same.
RSpec.describe "what is older than one collection", :listening do
  def answer(code, **options)
    run_ruby(code: code, requires: %w[memintro fiddle json stringio], **options).must_succeed.json
  end

  { preloaded: true, live: false }.each do |way, preloaded|
    it "is counted to the byte, #{way}: born before, not freed, with frees of young blocks by any thread" do
      figures = answer(read_program("old_blocks/old_bytes.rb"), env: preloaded ? preloaded_env : {})
      # Without what the arrays of the line itself take.
      bytes, blocks, = figures.transpose
      expect(figures.map { |row| row.first(2) }).to eq(figures.map { |row| row[2, 2] })
      expect(blocks.map { |count| count.round(-2) }).to eq([0, 1_000, 1_000, 800, 800, 2_200, 1_800])
      expect(bytes[2] - bytes[3]).to eq(200 * 1_001)
      expect(bytes[5] - bytes[6]).to eq(400 * 1_003)
    end
  end

  it "is estimated in sampled mode, and agrees with a visit of the sampled blocks" do
    figures = answer(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 1_000)
      GC.disable
      old = Array.new(3_000) { Fiddle.malloc(200) }
      GC.start
      young = Array.new(3_000) { Fiddle.malloc(200) }
      make = [Memintro["-e:3"], Memintro["-e:5"]]
      aged = Memintro.top(nil, older_than_gcs: 1).find { |one| one.name == "-e:3" }
      puts JSON.generate(old: make[0].old_bytes, visit: aged.live_bytes, young: make[1].old_bytes,
                         errors: [make[0].old.live_bytes_standard_error, aged.live_bytes_standard_error],
                         bound: make[1].old.interval(:live_bytes))
    RUBY
    expect(figures[:old]).to be_within(1).of(figures[:visit])
    expect(figures[:old]).to be_within(5 * figures[:errors][0]).of(600_000)
    expect(figures[:errors][0]).to be_within(1).of(figures[:errors][1])
    # None was sampled; that is no proof that there is none.
    expect([figures[:young], figures[:bound]]).to match([0, [0, be_between(3_000, 6_000)]])
  end

  it "is in reports, read back and summed over workers, and in answers for a live view" do
    program = start_program(<<~'RUBY')
      require "fiddle"
      Memintro.listen(name: "shop")
      puts :ready
      2.times do
        fork do
          Memintro.start
          GC.disable
          $old = Array.new(100) { Fiddle.malloc(70_000) }
          GC.start
          $new = Array.new(300) { Fiddle.malloc(70_000) }
          puts :done
          sleep
        end
      end
      sleep
    RUBY
    expect([program.line, program.line]).to eq(%w[done done])
    eventually { sockets.size == 3 }
    worker = (sockets.map(&:to_i) - [program.pid]).first
    one = memintro("top", worker, "--top", "2").must_succeed.stdout
    expect(one).to match(/growth +older than 1 GC +call site$/)
      .and match(/^ *20\.0 MiB .* 0 B +-e:10$/).and match(/^ *6\.7 MiB .* 6\.7 MiB +-e:8$/)
    sum = memintro("top", "shop", "--workers").must_succeed.stdout
    expect(sum).to match(/^ *40\.1 MiB .* 0 B +-e:10$/).and match(/^ *13\.4 MiB .* 13\.4 MiB +-e:8$/)
    require "memintro/control/client"
    path = File.join(socket_folder, "#{worker}.sock")
    vitals = Memintro::Control::Client.new(worker, path, patience: 60).ask_json("vitals")
    old = vitals["sites"].to_h { |site| site.values_at("name", "old_bytes") }
    # The VM's own memory while the line runs varies: 1 to 10 KB.
    expect(old.values_at("-e:8", "-e:10")).to match([be_between(7_000_000, 7_012_000), be < 4_000])
  end
end
