# frozen_string_literal: true

module Bench
  # What is run in every column: a server, small programs that resemble real ones, and larger ones. Each is a plain
  # script in workloads/ that leaves a checksum in Program.result. A program calls Program.rounds for its loop, and its
  # size is chosen so that plain Ruby takes one to two seconds, those of the group "5 s" at least five. The server is
  # driven from outside, by ServerLoad.
  #
  # To add one: a script in workloads/ and a line here.
  #
  # package:: Debian's packages that it needs
  # quick::   it does little at a small scale, so it serves to test the harness
  # group::   the means of a table are those of a group
  # server::  it is driven from outside
  # env::     what is added to the environment, in each column
  Workload = Struct.new(:name, :what, :package, :quick, :group, :server, :env, keyword_init: true) do
    def initialize(group: "1 s", env: {}, **) = super

    def path
      File.join(__dir__, "workloads", "#{name}.rb")
    end
  end

  # A heap that need not grow. Where it must, any 2,000 objects more or less decide when, and how often Ruby collects
  # then (docs/design/benchmarks.md has counts).
  ROOM = { "RUBY_GC_HEAP_INIT_SLOTS" => "400000" }.freeze

  WORKLOADS = [
    Workload.new(name: "server", what: "a loaded Puma: 2 workers of 8 threads, JSON and ERB", package: "puma wrk",
                 server: true, quick: true, group: nil, env: ROOM),
    Workload.new(name: "strings", what: "3 million strings too long for their slot, 1,000 kept", quick: true),
    Workload.new(name: "json", what: "parse, change and generate JSON documents", quick: true),
    Workload.new(name: "yaml", what: "load and dump a configuration with Psych", quick: true),
    Workload.new(name: "erb", what: "compile and render ERB pages", quick: true),
    Workload.new(name: "hashes", what: "index, group and merge records in hashes", quick: true),
    Workload.new(name: "threads", what: "4 threads pass jobs through queues", quick: true),
    Workload.new(name: "nokogiri", what: "parse, search and print HTML with libxml2", package: "ruby-nokogiri",
                 quick: true),
    Workload.new(name: "kramdown", what: "render Markdown", package: "ruby-kramdown", quick: false),
    Workload.new(name: "rubocop", what: "lint two files of the standard library", package: "rubocop", quick: false),
    Workload.new(name: "requests", what: "requests to a Rails application, without a server",
                 package: "ruby-railties", quick: true, group: "5 s"),
    Workload.new(name: "suite", what: "the test suite of the rss gem, with test-unit and REXML", quick: false,
                 group: "5 s"),
    Workload.new(name: "batch", what: "read, join and group orders in CSV, write a report for each customer",
                 quick: true, group: "5 s")
  ].freeze
end
