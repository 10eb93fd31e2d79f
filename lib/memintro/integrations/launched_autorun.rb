# frozen_string_literal: true

# What `memintro snapshot -- CMD` and its like have each Ruby process require. Nothing is raised here: the program runs
# whether or not somebody can look at it.
require_relative "../support/brake"

unless Memintro::Brake.on? || defined?(Memintro::LaunchedCommand)
  begin
    require_relative "../../memintro"
    require_relative "launched_command"
    Memintro::LaunchedCommand.new(ENV.to_h).install
  rescue StandardError, ScriptError => e
    begin
      STDERR.write("memintro: not looking at process #{Process.pid}: #{e.message}\n")
    rescue StandardError
      nil # without standard error there is nobody to tell
    end
  end
end
