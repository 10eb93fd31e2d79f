# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A worker shares its master's memory when it begins. Soon most of it is private, though it writes to none of the data.
RSpec.describe "the story of memory that a worker shared", :listening do
  let(:story) { File.join(Subprocess::ROOT, "spec/fixtures/stories/cow_after_fork.rb") }
  HEAP = %w[ruby_heap_live ruby_heap_free].freeze

  # The server, and the end by which its worker is told to go on.
  def server(env = {})
    program, input = start_worker("Memintro.listen; load ARGV.shift", story, env: env)
    [program, input, Integer(program.line[/\Ashared (\d+)\z/, 1])]
  end

  # Bytes by row, of all pages, and of those that are the process's own.
  def account_of(pid)
    eventually { memintro("ps").stdout.match?(/^ *#{pid} /) }
    json = JSON.parse(memintro("account", pid, "--json").must_succeed.stdout)
    rows = json["rows"].to_h { |row| [row["name"], row] }
    expect(rows.each_value.sum { |row| row["bytes"] }).to eq(json["rss"])
    expect(rows.values).to all(satisfy { |row| row["shared_bytes"] + row["private_bytes"] == row["bytes"] })
    kernel = Memintro::ProcessMemory.new(pid).to_h
    expect(rows.each_value.sum { |row| row["private_bytes"] }).to be_within(2 << 20).of(kernel[:uss])
    rows
  end

  def own_heap(rows) = HEAP.sum { |name| rows[name]["private_bytes"] }

  def go_on(program, input) = expect(serve(program, input)).to eq("served")

  it "says that the collector made Ruby's heap private, from an account and from a diff" do
    program, input, worker = server
    before = account_of(worker)
    heap = HEAP.sum { |name| before[name]["bytes"] }
    expect(heap).to be > 20 << 20
    expect(own_heap(before)).to be < 4 << 20
    earlier = snapshot_of(worker)
    go_on(program, input)
    after = account_of(worker)
    expect(own_heap(after)).to be > 15 << 20
    malloc = after.select { |name, _| name.start_with?("malloc") }.each_value.sum { |row| row["private_bytes"] }
    expect(malloc).to be < own_heap(after) / 2
    details = after["ruby_heap_live"]["details"]
    young = details["at_fork"].values_at("live_objects", "old_objects").reduce(:-)
    expect(young).to be > 400_000
    expect(details["own_pages"]["pages"]).to be > details["own_pages"]["heap_pages"] / 2
    expect(details["own_pages"]["old_objects"]).to be > 300_000

    text = memintro("account", worker).must_succeed.stdout
    expect(text.lines.first).to match(/\A\d+\.\d% of \d+\.\d MiB is Ruby's heap in pages of this process alone/)
      .and match(/They were shared at the fork, when \d{3},\d{3} objects were young or garbage: the collector has aged/)
      .and include("Process.warmup (Ruby 3.3), or GC.start four times")
    expect(text).to match(/^     bytes   share     private$/)
      .and match(/^ *[\d.]+ MiB +[\d.]+% +[\d.]+ MiB .*ruby_heap_live$/)
    diff = memintro("diff", earlier, snapshot_of(worker)).must_succeed.stdout
    expect(diff).to match(/MiB that was shared with other processes is this process's own now, most of it in ruby_heap/)
      .and match(/\d{3},\d{3} objects became old meanwhile/).and include("of this, in pages that no other process has:")
    rss = memintro("rss", worker).must_succeed.stdout
    expect(rss).to match(/^  private +[2-9]\d\.\d MiB$/).and match(/^  shared +\d+\.\d MiB$/)
  ensure
    input&.close
  end

  it "stays shared where the objects were old before the fork" do
    program, input, worker = server("WARM" => "1")
    go_on(program, input)
    expect(own_heap(account_of(worker))).to be < 8 << 20
  ensure
    input&.close
  end

  def snapshot_of(pid)
    @number = @number.to_i + 1
    file = File.join(socket_folder, "#{@number}.json")
    memintro("snapshot", pid, "--parts", "account", "-o", file).must_succeed
    file
  end
end
