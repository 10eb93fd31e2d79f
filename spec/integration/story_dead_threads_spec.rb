# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A job server grows with the number of failed jobs: the value of each thread that has ended is the thread that came
# after it, and the first ones are kept for a status page.
RSpec.describe "the story of threads that have ended and hold each other", :listening do
  PROGRAM_OF_STORY = File.join(Subprocess::ROOT, "spec/fixtures/stories/dead_thread_chain.rb")

  # Its lines, without figures of memory.
  def lines_of(output) = output.gsub(/RSS \d+ MB/, "RSS")

  it "is in the first line: the chain, its name, and its root" do
    env = { "ROUNDS" => "1", "PAUSE" => "0", "HOLD" => "60" }
    program = start_program("Memintro.listen; load ARGV.shift", PROGRAM_OF_STORY, env: env, wait: false)
    said = Array.new(2) { program.line }
    answer = memintro("holders", program.pid, "--class", "Thread").must_succeed.stdout
    expect(answer.lines.first).to match(
      /\A\d+ of \d+ Thread \(.*\): value of Thread, up to \d+ times ← JobServer\#@started_with \(Array\) ← .*Thread at /
    )
    chained, longest = answer.match(/\A(\d+) of .* up to (\d+) times/).captures.map(&:to_i)
    # Half of 1,000 jobs fail. A word that is left on a stack may hold the rest of a chain. Of four chains, one has at
    # least a quarter of the threads.
    expect(chained).to be_between(250, 500)
    expect(longest).to be_between(chained / 4, chained)
    json = JSON.parse(memintro("holders", program.pid, "--class", "Thread", "--json").must_succeed.stdout)
    way = json["groups"].first
    expect(way).to include("objects" => chained, "shortened" => true, "left_out" => longest - 1)
    expect(way["holders"].first).to include("class_name" => "Thread", "edge" => "value", "repeated" => true,
                                            "alike" => true, "left_out" => longest - 1)
    alone = run_command(RbConfig.ruby, PROGRAM_OF_STORY, env: { "ROUNDS" => "1", "PAUSE" => "0" }).must_succeed.stdout
    # memintro listens in a thread of its own.
    expect(lines_of(said.join("\n")).sub(/\d+\z/) { |count| count.to_i - 1 }).to eq(lines_of(alone).chomp)
  end
end
