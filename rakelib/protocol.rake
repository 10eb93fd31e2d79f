# frozen_string_literal: true

desc "Write the tables of docs/protocol.md from crates/analysis/src/answers/commands.rs"
task :protocol do
  require_relative "protocol/page"
  ProtocolPage.new.write
end
