# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "Programs in specs" do
  most = 15

  it "are files of spec/fixtures/code if they have more than #{most} lines" do
    files = Dir[File.join(Subprocess::ROOT, "spec/{unit,integration,matrix}/**/*_spec.rb")]
    long = files.flat_map do |file|
      programs = File.read(file).scan(/<<~(['"]?)RUBY\1.*?\n(.*?)^ *RUBY$/m).map(&:last)
      programs.select { |program| program.lines.size > most }.map { |program| [file, program.lines.first] }
    end
    expect(files.size).to be > 100
    expect(long).to eq([])
  end
end
