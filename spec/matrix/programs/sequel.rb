# frozen_string_literal: true

require "sequel"

db = Sequel.sqlite
db.create_table(:items) do
  primary_key :id
  String :name
  Float :price
end
items = db[:items]
db.transaction { 2000.times { |i| items.insert(name: "item #{i}", price: i / 7.0) } }
puts items.count, items.where { price > 200 }.count, format("%.4f", items.avg(:price))
items.where(Sequel.like(:name, "%9")).update(price: 0)
puts items.order(:price, :id).limit(5).map { |row| row.values_at(:id, :name, :price).inspect }
puts items.where(price: 0).delete, items.sql
begin
  db.run("no such thing")
rescue Sequel::DatabaseError => e
  puts e.message[/syntax error/]
end
