# A library that generates its methods: thousands of them, each compiled, none of them an object that anybody can see.
# memintro diff -- ruby examples/big_module.rb

module BigModule
  10_000.times do |i|
    body = (0..15).map { |n| "value_#{n} = row[#{n}].to_s + #{i}.to_s" }.join("; ")
    module_eval("def self.parse_#{i}(row) #{body}; value_15 end", "generated.rb", 1)
  end
end

puts "#{BigModule.singleton_methods.size} methods, and the answer is #{BigModule.parse_42([1] * 16)}"
