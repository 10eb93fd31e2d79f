# frozen_string_literal: true

require "json"

texts = Array.new(800) { |n| JSON.pretty_generate((1..500).map { |i| { "id" => i, "name" => "name #{n} #{i}" * 3 } }) }
puts texts.map(&:size).uniq.inspect, texts.map { |text| JSON.parse(text).last["id"] }.sum
# Each beyond the largest slot.
puts Array.new(300_000) { |i| "line #{i}".ljust(700).size }.sum
puts Gem.loaded_specs.keys.include?("bundler")
