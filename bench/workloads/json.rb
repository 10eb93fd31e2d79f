# frozen_string_literal: true

require "json"

orders = Array.new(200) do |i|
  { "id" => i, "customer" => "Customer number #{i} of the north", "paid" => i.even?, "total" => i * 1.25,
    "lines" => Array.new(5) { |n| { "article" => "article-#{i}-#{n}", "count" => n, "note" => "by noon, please" } } }
end
text = JSON.generate(orders)
bytes = 0
Program.rounds(700) do |i|
  parsed = JSON.parse(text)
  parsed.each { |order| order["total"] += i }
  bytes += JSON.generate(parsed).bytesize
end
Program.result = bytes
