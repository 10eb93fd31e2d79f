# frozen_string_literal: true

# Leaks Ruby objects: a cache without a bound, and its keys are whatever people type.
module Search
  Result = Struct.new(:title, :excerpt)
  CACHE = {}

  def self.find(query)
    CACHE[query] ||= Array.new(50) do |i|
      Result.new("#{query} #{i}", "an excerpt about #{query}, number #{i}. " * 5)
    end
  end
end
