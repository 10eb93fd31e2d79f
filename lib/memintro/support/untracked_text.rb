# frozen_string_literal: true

module Memintro
  # For classes that prepend it: `inspect` and `to_s` do not count as allocations of the program, so that showing
  # figures in a console does not change them.
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

    # Without the extension nothing is tracked, and it is not loaded for this.
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
