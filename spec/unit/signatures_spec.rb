# frozen_string_literal: true

require_relative "../spec_helper"

# sig/ agrees with itself and with Ruby's own signatures, wherever this Ruby has the tool.
RSpec.describe "sig/" do
  # Debian calls it by the Ruby's version.
  program = %W[rbs rbs#{RUBY_VERSION[/\A\d+\.\d+/]}].find do |name|
    ENV.fetch("PATH").split(":").any? { |folder| File.executable?(File.join(folder, name)) }
  end

  it "is valid" do
    skip "no rbs here" unless program
    skip "#{program} is another Ruby's" unless run_command(program, "--version", way: :bare).success?
    command = [program, "-r", "bigdecimal", "-r", "pathname", "-I", "sig", "validate"]
    result = run_command(*command, way: :bare, chdir: Subprocess::ROOT)
    expect([result.stderr.scan(/ERROR.*/), result.status.exitstatus]).to eq([[], 0])
  end
end
