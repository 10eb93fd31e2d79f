# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"

# A user who may have no more processes or threads (ulimit -u): calls that need one raise a clear error, or do
# without.
RSpec.describe "a process that may start no more threads" do
  # As a user without other processes. more: how many threads and processes may come.
  def outcomes(more)
    skip "only root can become another user" unless Process.uid.zero?
    Dir.mktmpdir do |folder|
      File.chmod(0o777, folder)
      result = run_ruby(code: program(more, folder), requires: %w[json]).must_succeed.json
      skip "this checkout is not readable to others" if result[:unreadable]
      result
    end
  end

  def program(more, folder)
    "MORE, FOLDER = #{more}, #{folder.dump}\n" + read_program("few_processes/asked.rb")
  end

  it "says which limit forbids a copy, and a socket" do
    found = outcomes(0)
    limit = "no more processes are allowed: raise the limit (ulimit -u, pids.max of the control group)"
    expect(found.values_at(:account, :holders, :leaks, :dump)).to all(include(limit))
    expect(found[:listen]).to start_with("Memintro::ListenError: this process cannot listen: can't create Thread")
      .and include("ulimit -u")
  end

  it "says which limit forbids the tool" do
    expect(outcomes(1)).to include(account: "answered", holders: include("cannot be run").and(include("ulimit -u")))
  end

  it "is dumped, and asked for holders, by a tool that has no thread beside its first one" do
    expect(outcomes(2)).to include(account: "answered", holders: "answered", dump: "answered",
                                   # It has changed its user.
                                   leaks: include("pagemap").and(include("start it as its user")))
  end
end
