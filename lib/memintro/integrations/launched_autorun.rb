# frozen_string_literal: true

# `memintro snapshot -- CMD`, `diff`, `iseqs` and `histogram` let each Ruby process of CMD require this file. It raises
# nothing: the program runs even if memintro fails.
require_relative "../support/brake"

unless Memintro::Brake.on? || defined?(Memintro::LaunchedCommand)
  begin
    require_relative "../api/whole"
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
