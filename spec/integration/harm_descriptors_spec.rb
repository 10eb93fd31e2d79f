# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Processes that may open only so many more files, or that have closed their streams.
RSpec.describe "A process with few descriptors left" do
  ASKS = <<~'RUBY'
    file = File.join(ARGV[0], "dump.ndjson")
    ASKS = { start: -> { Memintro.start }, totals: -> { Memintro.totals }, top: -> { Memintro.top(3) },
             text: -> { Memintro.report(StringIO.new) }, rss: -> { Memintro.rss }, pss: -> { Memintro.pss },
             account: -> { Memintro.account }, leaks: -> { Memintro.leaks }, holders: -> { Memintro.holders(String) },
             dump: -> { Memintro.heap_dump(file) }, snapshot: -> { Memintro.snapshot.save(file) },
             log: -> { Memintro.log_every(60, StringIO.new).stop }, measure: -> { Memintro.measure { "m" * 1_000 } },
             histogram: -> { Memintro.histogram }, listen: -> { Memintro.listen; Memintro.stop_listening },
             stop: -> { Memintro.stop } }
    ask = -> { ASKS.transform_values { |one| (one.call; "ok") rescue "#{$!.class}: #{$!.message}" } }
  RUBY
  LIMITED = Subprocess.read_program("harm_descriptors/limited.rb")

  it "gets clear errors, goes on, and has everything once there are more" do
    found = Dir.mktmpdir do |folder|
      run_ruby(nil, folder, *0..6, 8, 10, code: ASKS + LIMITED, requires: %w[json stringio memintro],
                                          env: { "MEMINTRO_SOCKET_FOLDER" => folder }).must_succeed.json
    end
    expect(found.size).to eq(9)
    found.each do |limited, free|
      expect(free.values.uniq).to eq(["ok"]), free.inspect
      refused = limited.values - ["ok"]
      expect(refused)
        .to all(match(/\AMemintro::\w*Error: .*(?:no more files may (?:have been|be) open|Too many open files)/))
      expect(refused).to all(satisfy { |said| !said.match?(/mount it/) })
    end
    # The text of a report needs no file.
    expect(found.first.first.except(:text).values).to all(match(/no more files may be open.*\(ulimit -n\)/))
    expect(found.flat_map { |limited, _| limited.values }.grep(/memintro-tool/))
      .to all(end_with("Too many open files: raise the limit of open files (ulimit -n)"))
  end

  it "keeps nothing open under the number of a stream that the program has closed" do
    numbers = run_ruby(code: <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      said = $stdout.dup
      close = Fiddle::Function.new(Fiddle.dlopen(nil)["close"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
      3.times { |number| close.call(number) }
      Memintro.rss
      said.puts(JSON.generate((0..2).select { |number| File.exist?("/proc/self/fd/#{number}") }))
      said.flush
    RUBY
    expect(numbers).to eq([])
  end
end
