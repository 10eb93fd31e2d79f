# frozen_string_literal: true

desc "Write the tables of docs/protocol.md from lib/memintro/control/schema.rb"
task :protocol do
  require_relative "protocol/page"
  ProtocolPage.new.write
end
