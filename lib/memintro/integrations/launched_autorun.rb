# frozen_string_literal: true

# Each Ruby process of CMD in `memintro snapshot -- CMD`, `diff`, `iseqs` and `histogram` requires this file. It
# raises nothing: the program runs even if memintro fails.
require_relative "../support/brake" unless defined?(Memintro::Brake)

unless Memintro::Brake.on? || defined?(Memintro::LaunchedCommand)
  begin
    # A process has one memintro: that of the program, if the program has loaded it before.
    code = defined?(Memintro::Paths) ? Memintro::Paths::CODE : File.dirname(__dir__)
    require_relative code
    require_relative "#{code}/integrations/launched_command"
    Memintro::LaunchedCommand.new(ENV.to_h).install
  rescue StandardError, ScriptError => e
    begin
      STDERR.write("memintro: not looking at process #{Process.pid}: #{e.message}\n")
    rescue StandardError
      nil # without standard error there is no reader
    end
    Memintro::Paths.forget unless defined?(Memintro::Native)
  end
end
