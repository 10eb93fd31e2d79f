# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/foreign_programs"

# Programs written by others, run with full tracking: what they print and how they end is what it is without. says: the
# words that a program ends with when it has done its work; processes: how many it consists of at least; allocations:
# what each of them makes at least.
RSpec.describe "A program written by others", :programs do
  include ForeignPrograms

  {
    "rubocop on a part of its own sources" => { library: "rubocop", tool: "rubocop", command: :rubocop, status: 1,
                                                says: /^\d\d files inspected, \d+ offenses/ },
    "kramdown on a manual" => { library: "kramdown", tool: "kramdown", command: :kramdown, says: %r{</table>\s*\z} },
    "asciidoctor on a manual" => { library: "asciidoctor", tool: "asciidoctor", command: :asciidoctor,
                                   says: %r{</html>\s*\z} },
    "nokogiri on XML, HTML and XSLT" => { library: "nokogiri", command: :nokogiri, says: /^done$/ },
    "sequel on SQLite" => { library: %w[sequel sqlite3], command: :sequel, says: /^syntax error$/ },
    "activerecord on SQLite" => { library: %w[active_record sqlite3], command: :activerecord,
                                  says: /^400\n\["book 3\.0",/ },
    "a Rails application's boot and requests" => { library: %w[rails action_controller/railtie], command: :rails,
                                                   says: %r{visitor20.*\n/hello/:name} },
    # The program's own, which is more than Bundler makes before it.
    "bundle exec" => { library: "bundler", tool: "bundle", command: :bundle, says: /^210000000\ntrue$/,
                       allocations: 300_000 },
    "rake with dependent and parallel tasks" => { library: "rake", tool: "rake", command: :rake,
                                                  says: /^all parts: 0:499 .* 9:499$/ },
    "irb with a script" => { library: "irb", tool: "irb", command: :irb, says: /^"\[1,2,3,.*,50\]"$/ },
    # The program that asks, Puma's own process, and the workers. On Ruby 3.3 a worker may wait for itself until it is
    # killed (docs/limits.md), and leaves no report then.
    "Puma with 4 workers" => { library: "puma", tool: "puma", command: :puma, workers: 4,
                               processes: RUBY_VERSION < "3.3" ? 6 : 2,
                               says: /^\{"200"=>400\}\n4\n0\nnil\n15$/ }
  }.each do |name, program|
    describe name do
      before do
        need(*program[:library])
        need_tool(program[:tool]) if program[:tool]
      end

      ForeignPrograms::WAYS.each do |way|
        it "runs unharmed, #{way}" do
          tracked = run_program(program[:command], way)
          expect(tracked.result).to eq(bare(program[:command], program.fetch(:status, 0), program[:says]))
          expect(tracked.allocations.size).to be >= program.fetch(:processes, 1)
          expect(tracked.allocations).to all(be > program.fetch(:allocations, 2_000))
          expect(tracked.workers).to match([be_between(1000, 1100)] * program.fetch(:workers, 0))
        end
      end
    end
  end
end
