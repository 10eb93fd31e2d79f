# frozen_string_literal: true

require_relative "command"

exit Bench::Command.call(ARGV)
