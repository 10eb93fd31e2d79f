# frozen_string_literal: true

# A job of the night: it reads orders and customers from CSV, joins and groups them, writes a report for each customer,
# and keeps the totals.
require "csv"
require "json"

random = Random.new(3)
customers = CSV.generate { |csv| 3_000.times { |i| csv << [i, "Customer #{i}", %w[north south east west][i % 4]] } }
totals = Hash.new { |regions, name| regions[name] = Hash.new(0) }
bytes = 0
Program.rounds(36) do |day|
  orders = CSV.generate do |csv|
    12_000.times do |i|
      csv << ["#{day}-#{i}", random.rand(3_000), "2024-01-#{(day % 28) + 1}", random.rand(10_000) / 100.0]
    end
  end
  names = CSV.parse(customers).to_h { |id, name, region| [id, { name: name, region: region }] }
  CSV.parse(orders).group_by { |order| order[1] }.sort.each do |id, theirs|
    customer = names.fetch(id)
    sum = theirs.sum { |order| Float(order[3]) }
    totals[customer[:region]][customer[:name]] += sum
    lines = theirs.sort_by(&:first)
                  .map { |number, _, date, price| format("%-12s %s %10.2f", number, date, Float(price)) }
    report = { customer: customer, lines: lines, sum: sum.round(2) }
    bytes += JSON.pretty_generate(report).bytesize
  end
end
Program.result = [bytes, totals.sum { |_, region| region.sum { |_, sum| sum } }.round].join(" ")
