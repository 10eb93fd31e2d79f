# frozen_string_literal: true

require "fileutils"
require "timeout"
require "tmpdir"

Dir[File.join(__dir__, "support", "*.rb")].sort.each { |file| require file }

# More than any example takes on a busy machine; `deadline_seconds:` of an example says otherwise. A wait that never
# ends is a failure with a name, not a run that hangs.
EXAMPLE_DEADLINE_SECONDS = 1_500

RSpec.configure do |config|
  # What measures time is marked `alone: true`: no other spec runs meanwhile (rakelib/spec). All else may run beside
  # anything.
  config.define_derived_metadata { |metadata| metadata[:beside] = !metadata[:alone] }

  # An example in spec/unit with several expectations reports all that fail.
  config.define_derived_metadata(file_path: %r{/spec/unit/}) { |metadata| metadata[:aggregate_failures] ||= true }

  config.around do |example|
    seconds = example.metadata.fetch(:deadline_seconds, EXAMPLE_DEADLINE_SECONDS)
    Timeout.timeout(seconds, Timeout::Error, "not over after #{seconds} s") { example.run }
  end
end
