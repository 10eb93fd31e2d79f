# frozen_string_literal: true

require_relative "../spec_helper"

# A thread may be ended at any line of memintro's files, while it loads them.
RSpec.describe "A thread that is ended while it loads a file" do
  # A thread that ends itself amid a file, as by a TracePoint, cannot be made to go on until all is loaded.
  it "does not leave half of a file that counts as all of it, at whichever line the thread that loads it ends" do
    folder = Dir.mktmpdir
    said = run_ruby("killed_while_loading.rb", env: { "MEMINTRO_SOCKET_FOLDER" => folder }, requires: ["json"])
    said.must_succeed.json.each do |name, answers|
      # Near its end, it may have begun.
      expect(answers.uniq - [[true, true, true]]).to eq([[false, true, true]]), "#{name}: #{answers.uniq}"
      expect(answers.size).to be > 5
    end
  ensure
    FileUtils.rm_rf(folder)
  end
end
