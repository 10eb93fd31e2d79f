# frozen_string_literal: true

module Memintro
  # Stands in front of the class that prepends it: `inspect` and `to_s` do not count as the program's allocations, so a
  # console or a one-liner that shows figures does not change them.
  #
  # @api private
  module UntrackedText
    # @return [String]
    def inspect
      UntrackedText.made { super }
    end

    # @return [String]
    def to_s
      UntrackedText.made { super }
    end

    # Without the extension there is nothing that tracks, and nothing to load it for.
    #
    # @return [Object] the block's value
    def self.made
      return yield unless defined?(Native)

      begin
        Native.untracked_enter
        yield
      ensure
        Native.untracked_leave
      end
    end
  end
end
