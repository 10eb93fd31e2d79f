# frozen_string_literal: true

module Bench
  # What is run in every column: small programs that resemble real ones. Each is a plain script in workloads/
  # that calls Program.rounds for its loop and leaves a checksum in Program.result; its size is chosen so that plain
  # Ruby takes one to two seconds.
  #
  # To add one: a script in workloads/ and a line here.
  Workload = Struct.new(:name, :what, :package, :quick, keyword_init: true) do
    def path
      File.join(__dir__, "workloads", "#{name}.rb")
    end
  end

  WORKLOADS = [
    Workload.new(name: "strings", what: "3 million strings too long for their slot, 1,000 kept", quick: true),
    Workload.new(name: "json", what: "parse, change and generate JSON documents", quick: true),
    Workload.new(name: "yaml", what: "load and dump a configuration with Psych", quick: true),
    Workload.new(name: "erb", what: "compile and render ERB pages", quick: true),
    Workload.new(name: "hashes", what: "index, group and merge records in hashes", quick: true),
    Workload.new(name: "threads", what: "4 threads pass jobs through queues", quick: true),
    Workload.new(name: "nokogiri", what: "parse, search and print HTML with libxml2", package: "ruby-nokogiri",
                 quick: true),
    Workload.new(name: "kramdown", what: "render Markdown", package: "ruby-kramdown", quick: false),
    Workload.new(name: "rubocop", what: "lint two files of the standard library", package: "rubocop", quick: false)
  ].freeze
end
