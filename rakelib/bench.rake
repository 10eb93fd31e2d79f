# frozen_string_literal: true

desc "Measure what tracking costs beside its peers: prints one table (see bin/bench --help)"
task bench: :compile do
  sh "bin/bench"
end

namespace :bench do
  desc "Measure the table of live blocks by itself"
  task table: :compile do
    cargo "bench", "--locked", "--package", "memintro-tracker", "--bench", "table"
  end

  desc "Measure the table of live blocks with criterion"
  task criterion: :compile do
    cargo "bench", "--locked", "--package", "memintro-tracker", "--bench", "criterion"
  end
end
