# frozen_string_literal: true

desc "Write what other languages read of the lists of figures in crates/abi/src/lists.rs"
task :figures do
  cargo "test", "--locked", "--quiet", "--package", "memintro-abi", "--test", "lists", MEMINTRO_WRITE_LISTS: "1"
end
