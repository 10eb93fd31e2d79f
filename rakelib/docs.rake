# frozen_string_literal: true

desc "Write the Ruby documentation to doc/ruby and the Rust documentation below target/"
task docs: "lint:rustdoc" do
  sh "yard", "doc", "--output-dir", "doc/ruby"
end
