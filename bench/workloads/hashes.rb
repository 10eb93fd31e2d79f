# frozen_string_literal: true

random = Random.new(42)
towns = Array.new(500) { |i| "town-#{i}".to_sym }
found = 0
Program.rounds(36) do
  people = Array.new(20_000) { |i| { id: i, name: "person number #{i} of many", town: towns[random.rand(500)] } }
  by_id = people.to_h { |person| [person[:id], person] }
  by_town = people.group_by { |person| person[:town] }
  moved = by_id.transform_values { |person| person.merge(town: towns[person[:id] % 500], moved: true) }
  counts = Hash.new(0)
  moved.each_value { |person| counts["#{person[:town]}/#{person[:moved]}"] += 1 }
  found += by_town.sum { |_, group| group.size } + counts.size + moved.size
end
Program.result = found
