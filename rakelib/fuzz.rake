# frozen_string_literal: true

# Fuzzers of all code that reads input from outside: `rake fuzz[target,seconds]`. Those of Rust use cargo-fuzz, one
# folder for each crate; those of Ruby mutate valid input (spec/fuzz). The ordinary tests replay the corpora and run
# the others briefly.

RUST_FUZZERS = { "module" => "crates/elf", "raw_dump" => "crates/analysis", "log" => "crates/tool",
                 "request_log" => "crates/tool", "answer" => "crates/tool",
                 "heap_file" => "crates/heap", "core_file" => "crates/core_file" }.freeze
# Targets that begin with the corpus of another one.
FUZZ_CORPORA = { "request_log" => "log" }.freeze
# Targets that start threads: what one of them gives back while it ends looks lost to the sanitizer.
FUZZ_WITH_THREADS = %w[heap_file].freeze
RUBY_FUZZERS = %w[requests replies snapshots].freeze

# Inputs that use more memory than this, or that take longer, are failures.
FUZZ_RSS_MEGABYTES = 2048
FUZZ_INPUT_SECONDS = 10

def fuzz_rust(target, seconds)
  unless system("cargo", "fuzz", "--version", out: File::NULL, err: File::NULL)
    abort "fuzzing needs cargo-fuzz: cargo install cargo-fuzz --locked"
  end

  folder = File.expand_path("../#{RUST_FUZZERS.fetch(target)}/fuzz", __dir__)
  found = File.expand_path("../tmp/fuzz/#{target}", __dir__)
  corpus = "#{folder}/corpus/#{FUZZ_CORPORA.fetch(target, target)}"
  mkdir_p found, verbose: false
  if target == "raw_dump"
    cargo "test", "--locked", "--package", "memintro-analysis", "--test", "corpus", MEMINTRO_WRITE_CORPUS: "1"
  end
  # New inputs go into another folder, because the corpus is small and made by hand. A stable compiler does
  # as well as a nightly one.
  sh({ "RUSTC_BOOTSTRAP" => "1", "CARGO_TARGET_DIR" => File.expand_path("../target/fuzz", __dir__) },
     "cargo", "fuzz", "run", "--fuzz-dir", folder, target, found, corpus, "--",
     "-max_total_time=#{seconds}", "-timeout=#{FUZZ_INPUT_SECONDS}", "-rss_limit_mb=#{FUZZ_RSS_MEGABYTES}",
     "-print_final_stats=1", *("-detect_leaks=0" if FUZZ_WITH_THREADS.include?(target)))
end

desc "Fuzz one reader, or all in turn (all), for some seconds: rake fuzz[target,seconds,seed]"
task :fuzz, %i[target seconds seed] => :compile do |_, arguments|
  known = RUST_FUZZERS.keys + RUBY_FUZZERS
  target = arguments[:target] || "all"
  abort "no fuzz target #{target}: there are #{known.join(', ')}, and all" unless [*known, "all"].include?(target)
  seconds = Integer(arguments[:seconds] || 60, 10)
  (target == "all" ? known : [target]).each do |name|
    next fuzz_rust(name, seconds) if RUST_FUZZERS.key?(name)

    ruby File.expand_path("../spec/fuzz/run.rb", __dir__), name, seconds.to_s, *arguments[:seed]
  end
end
