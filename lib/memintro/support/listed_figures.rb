# frozen_string_literal: true

require_relative "json_text"

module Memintro
  # Conversions of figures with a list of rows: rows as hashes, and JSON that begins with the number of its layout. A
  # class that includes this after {ValueObject} names the list in `LISTED`, the first member of its JSON in `HEAD`,
  # and the number in `LAYOUT`.
  module ListedFigures
    # @return [Hash{Symbol => Object}] all figures, with rows as hashes
    def to_h
      listed = self.class::LISTED
      super.merge(listed => public_send(listed).map(&:to_h))
    end

    # @return [String] all figures as JSON
    def to_json(*)
      JsonText.dump({ self.class::HEAD => self.class::LAYOUT, **to_h })
    end
  end
end
