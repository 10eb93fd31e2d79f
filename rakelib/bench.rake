# frozen_string_literal: true

desc "Measure what tracking costs beside its peers: prints one table (see bin/bench --help)"
task bench: :compile do
  sh "bin/bench"
end

namespace :bench do
  { table: "by itself", criterion: "with criterion" }.each do |name, how|
    desc "Measure the table of live blocks #{how}"
    task name => :compile do
      cargo "bench", "--locked", "--package", "memintro-bench", "--bench", name.to_s
    end
  end
end
