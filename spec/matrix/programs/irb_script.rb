class Point
  attr_reader :x
  def initialize(x) = @x = x
end
points = Array.new(3000) { |i| Point.new("point #{i} " * 20) }; nil
points.map(&:x).map(&:size).sum
undefined_thing rescue "rescued"
points.last.x.upcase[0, 20]
require "json"
JSON.generate((1..50).to_a)
