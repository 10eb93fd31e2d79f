# frozen_string_literal: true

require_relative "native_programs"

# Runs a native fixture that tracks itself: with the hook preloaded, or loaded by the program while it runs.
module TruthDriver
  WAYS = %i[preloaded live].freeze

  module_function

  # Runs the program and answers its JSON line.
  def native(program, *arguments, way:, **options)
    Subprocess.run_command(program, *arguments.map(&:to_s), way: way, **options).must_succeed.json
  end

  # The truth program's verdict on this number of operations.
  def truth(operations:, way:, threads: 4, seed: 1, variant: :lazy, **options)
    program = NativePrograms.program("truth.cc", variant: variant)
    result = Subprocess.run_command(program, operations.to_s, threads.to_s, seed.to_s, way: way, **options)
    result.json.merge(differences: result.stderr)
  end
end

RSpec.configure { |config| config.include TruthDriver } if defined?(RSpec)
