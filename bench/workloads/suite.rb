# frozen_string_literal: true

# The tests of the rss gem, which Ruby brings along with the gem: 312 of them, which make and parse feeds.
folder = Gem::Specification.find_by_name("rss").gem_dir
$LOAD_PATH.unshift(File.join(folder, "lib"), File.join(folder, "test"))
require "test-unit"
require "stringio"
require "test/unit/collector/descendant"
require "test/unit/ui/console/testrunner"

Test::Unit::AutoRunner.need_auto_run = false
Dir[File.join(folder, "test", "test_*.rb")].sort.each { |path| require path }
suites = []
Program.rounds(1) do
  collector = Test::Unit::Collector::Descendant.new
  runner = Test::Unit::UI::Console::TestRunner.new(collector.collect("rss"), output: StringIO.new)
  suites << runner.start
end
Program.result = suites.flat_map { |result| [result.run_count, result.assertion_count, result.failure_count] }.join(" ")
