# frozen_string_literal: true

require "rubocop"

# Files of Ruby itself: the same text for everybody with the same Ruby.
files = %w[pstore.rb open3.rb].map { |name| File.join(RbConfig::CONFIG.fetch("rubylibdir"), name) }
arguments = ["--force-default-config", "--cache", "false", "--format", "offenses", "--out", File::NULL, *files]
statuses = []
Program.rounds(1) { statuses << RuboCop::CLI.new.run(arguments) }
Program.result = statuses.sum
