# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/foreign_programs"

# Programs written by others, run with full tracking: what they print and how they end is what it is without.
RSpec.describe "A program written by others", :programs do
  include ForeignPrograms

  {
    "rubocop on its own sources" => { library: "rubocop", tool: "rubocop", command: :rubocop },
    "kramdown on a manual" => { library: "kramdown", tool: "kramdown", command: :kramdown },
    "asciidoctor on a manual" => { library: "asciidoctor", tool: "asciidoctor", command: :asciidoctor },
    "nokogiri on XML, HTML and XSLT" => { library: "nokogiri", command: :nokogiri },
    "sequel on SQLite" => { library: %w[sequel sqlite3], command: :sequel },
    "activerecord on SQLite" => { library: %w[active_record sqlite3], command: :activerecord },
    "a Rails application's boot and requests" => { library: "rails", command: :rails },
    "bundle exec" => { library: "bundler", tool: "bundle", command: :bundle },
    "rake with dependent and parallel tasks" => { library: "rake", tool: "rake", command: :rake },
    "irb with a script" => { library: "irb", tool: "irb", command: :irb },
    "Puma with 4 workers" => { library: "puma", tool: "puma", command: :puma }
  }.each do |name, program|
    describe name do
      before do
        need(*program[:library])
        need_tool(program[:tool]) if program[:tool]
      end

      ForeignPrograms::WAYS.each do |way|
        it "runs unharmed, #{way}" do
          tracked = run_program(program[:command], way)
          expect(tracked.result).to eq(bare(program[:command]))
          expect(tracked.allocations).to be > 2_000
        end
      end
    end
  end
end
