# frozen_string_literal: true

require_relative "../spec_helper"

# The shell functions that `bin/test` is made of.
RSpec.describe "bin/support/steps.bash" do
  def bash(code, *arguments)
    steps = File.join(Subprocess::ROOT, "bin", "support", "steps.bash")
    run_command("bash", "-c", ". #{steps}; cd \"$1\"\n#{code}", "bash", @folder, *arguments)
  end

  around { |example| Dir.mktmpdir { |folder| @folder = folder and example.run } }

  it "end a step that is silent for too long, with all processes that it has started" do
    result = bash(<<~'BASH')
      step "stuck" followed 1 log bash -c 'sleep 1000 & echo $!; wait'; echo "status $?"
      grep --no-messages '^State:.[^ZX]' "/proc/$(head -n 1 log)/status"
    BASH
    expect(result.stdout).to include("(ended, for it has said nothing for 1 s)\n==> FAILED with status 124: stuck")
    expect(result.stdout).to end_with("\nstatus 124\n")
  end

  it "leave a step alone that is slow and says so, and hand on its status" do
    result = bash(<<~'BASH')
      step "slow" followed 4 log bash -c 'for at in 1 2 3 4 5 6 7 8; do echo $at; sleep 1; done'; echo "status $?"
      step "bad" followed 4 log bash -c 'echo no; exit 3'; echo "status $?"
    BASH
    expect(result.stdout.scan(/^status (\d)/)).to eq([["0"], ["3"]])
    expect(result.stdout.lines.grep(/\A\d\n/).size).to eq(8)
  end
end
