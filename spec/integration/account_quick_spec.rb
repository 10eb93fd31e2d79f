# frozen_string_literal: true

require_relative "../spec_helper"

# What makes an account without Ruby's heap quick: the kernel tells ranges of resident pages, where it can, and nobody
# waits until it has taken the copy's page tables apart.
RSpec.describe "an account that does not wait", :vm, :vm_long do
  # Since Linux 6.7.
  def self.tells_ranges?
    RbConfig::CONFIG["host_os"].start_with?("linux") &&
      (Etc.uname[:release].split(".").first(2).map(&:to_i) <=> [6, 7]) >= 0
  end

  CALLS = Subprocess.read_program("account_quick/calls.rb")

  # smaps is its twin: of the page of zeroes, small and huge, of memory that copies do not get, of shared memory, of a
  # private file that was written to.
  it "says by ranges of pages what smaps says" do
    skip "this kernel does not tell ranges" unless self.class.tells_ranges?
    skip "another number of ioctl" unless RbConfig::CONFIG["host_cpu"] == "x86_64"

    code = CALLS + read_program("account_quick/ranges.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    quick, slow = result.values_at(:quick, :slow)
    expect([quick[:ranges], slow[:ranges]]).to eq([2, 0])
    # The copies themselves read lists of other lengths.
    %i[rss other own file].each { |key| expect(quick[key]).to be_within(256 << 10).of(slow[key]), key.to_s }
    # 16 MiB but the page that was written to. A page that Ruby or the C library has only read may be there, too.
    expect([quick[:zero], slow[:zero]]).to all(be_between((16 << 20) - 4096, (16 << 20) + (16 << 10)))
    expect(quick[:other]).to be_between((5 << 20) + (160 << 10), 6 << 20)
    expect(quick[:file]).to be > 3 << 20
  end

  it "asks smaps where much memory is kept from copies" do
    result = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      2.times { lines }
      before = lines
      fill(20 << 20).then { |at| advise(at, 20 << 20, 10) }
      after = lines
      puts JSON.generate(ranges: [before, after].map { |one| sum(one, "ranges") }, grown: sum(after, "other") - sum(before, "other"))
    RUBY
    expect(result[:ranges]).to eq(self.class.tells_ranges? ? [2, 1] : [0, 0])
    expect(result[:grown]).to be_within(64 << 10).of(20 << 20)
  end

  # A thread takes note of the copy's end.
  it "says the same where no thread may be started" do
    skip "other numbers of system calls" unless RbConfig::CONFIG["host_cpu"] == "x86_64"

    code = CALLS + read_program("account_quick/free_pieces.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    before, after = result.values_at(:before, :after)
    expect([before, after].map(&:keys)).to all(contain_exactly(:arena))
    expect(result).to include(rest: 0, left: 0)
    # 30,000 chunks, each of 1,008 bytes.
    expect(before[:arena][3]).to be_between(29_000 * 1008, 36_000 * 1008)
    expect(after[:arena].zip(before[:arena]).map { |one, other| (one - other).abs }).to all(be < 200_000)
  end

  # Pages of Ruby's heap are passed over, and the search ends with the last block that the C library has counted. A page
  # that is none, or a wrong end, would leave a block out.
  it "finds each block with a mapping of its own between the pages of Ruby's heap", vm_long: false do
    code = CALLS + read_program("account_quick/mappings.rb")
    found = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    found, largest = found.values_at(:found, :largest)
    expect(largest).to be > 20 << 20
    expect(found.map(&:first)).to eq(found.map { |one| one[1] })
    # Ruby has some of its own.
    expect(found.map { |one| one.first.first - one.last }).to all(be_between(0, 20))
    expect(found.last.last).to be > 120
  end

  # The kernel takes some milliseconds for the page tables of 400 MiB.
  it "leaves its copy to a hidden thread, and no rest of either" do
    code = CALLS + read_program("account_quick/end_of_copy.rb")
    result = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(result).to include(seen: be > 0, waited: 0, forked: [7] * 5, others: [0] * 4)
    # Threads that Ruby keeps for later may end meanwhile.
    expect(result).to include(signals: 0, more: be <= 0, children: 0)
  end
end
