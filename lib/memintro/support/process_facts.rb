# frozen_string_literal: true

require_relative "../version"

module Memintro
  # The facts from Ruby in a report of this process.
  # @api private
  module ProcessFacts
    # @return [Array<String>] the versions of memintro and of Ruby, what Ruby was built for, the time, and the program
    def self.now
      [VERSION, RUBY_VERSION, RUBY_PLATFORM, Time.now.utc.strftime("%FT%TZ"), $PROGRAM_NAME]
    end
  end
end
