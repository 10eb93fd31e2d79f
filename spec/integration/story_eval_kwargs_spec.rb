# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# Formulas with keywords are evaluated again and again. Before Ruby 3.4, and patches of 3.3, each leaves a call info and
# a call cache, which are objects of the VM alone, and the class of the called method keeps them.
RSpec.describe "The story of evaluated formulas", :listening do
  story = File.join(Subprocess::ROOT, "spec", "fixtures", "stories", "eval_kwargs.rb")
  line = "#{story}:#{File.readlines(story).index { |one| one.include?('instance_eval') } + 1}"
  mended = RUBY_VERSION >= "3.3"

  it "is found by a hunt, in its first investigation" do
    told = run_ruby("hunt_story.rb", story, 5, 12, requires: %w[memintro], env: { "EACH" => "1500" }).must_succeed.json
    expect(told).to include(tracking: false)
    next expect(told[:findings]).to eq([]) if mended

    expect(told[:findings].size).to eq(1)
    finding = told[:findings].first
    expect(told[:hunt]).to include(investigations: 1, errors: 0, suspects: [])
    kinds = %w[imemo_callcache imemo_callinfo]
    expect(kinds).to eq([finding[:what], *finding[:also]].grep(/imemo/).sort)
    expect(finding).to include(kind: "internal_objects", advice: /compile the text once/, holders: include(/Formulas/),
                               held_by: /\A(?:class )?Formulas \(cache of methods\)/)
    # One of both is made by the text, the other by the line that evaluates it.
    expect([finding[:site], finding[:called_from]]).to eq(["formula:1", line]).or eq([line, nil])
    expect(finding[:sentence]).to match(/\Aimemo_call\w+, with imemo_call\w+, grows by /)
    expect(finding[:sentence]).to include("made at #{finding[:site]}", "held by ", ": internal objects of Ruby's VM")
    # 18,000 formulas a minute, and a slot of 40 bytes for each.
    expect(finding[:bytes_per_minute]).to be_within(150_000).of(18_000 * 40)
  end

  it "is shown by the lines and the holder of these objects, if they are followed by name" do
    told = run_ruby(code: <<~RUBY, env: { "ROUNDS" => "0" }, requires: %w[json memintro]).must_succeed.json
      load #{story.dump}
      formulas = Formulas.new
      Memintro.start(objects: %w[imemo_callcache imemo_callinfo])
      2_000.times { |row| formulas.evaluate("function\#{row % 40}(amount: \#{row}, rate: 2, digits: 1)") }
      GC.start
      lines = Memintro.top(nil).to_h { |site| [site.name, site.classes.transform_values(&:first)] }
      puts JSON.generate(lines: lines.values_at("formula:1", #{line.dump}),
                         held: (Memintro.holders(site: "formula:1").sentence unless #{mended}),
                         kind: (Memintro.holders("imemo_callinfo").groups.first.to_s unless #{mended}))
    RUBY
    counts = [0, 1].map { |at| told[:lines][at].to_h.values_at(:imemo_callcache, :imemo_callinfo).map(&:to_i) }
    next expect(counts.flatten.max).to be < 200 if mended

    expect([counts[0][0], counts[1][1]]).to all(be_between(2_000, 2_010))
    expect(told[:held]).to match(/\A2,0\d\d of 2,0\d\d objects from formula:1 .*: .*Formulas \(cache of methods\)/)
    expect(told[:kind]).to include("Formulas (cache of methods)")
  end

  it "has the same output as without memintro" do
    env = { "ROUNDS" => "2", "EACH" => "500", "PAUSE" => "0" }
    plain = run_command(RbConfig.ruby, story, env: env).must_succeed
    hunted = run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", story,
                         env: { **env, "MEMINTRO_HUNT" => "1" }).must_succeed
    said = [plain, hunted].map { |one| [one.stdout.gsub(/RSS \d+ MB, \d+ slots/, ""), one.stderr] }
    expect(said.uniq.size).to eq(1)
    expect(plain.stdout.lines.size).to eq(3)
  end
end
