# frozen_string_literal: true

# What `memintro run` has each Ruby process require: connects Ruby to the hook, starts tracking unless the preloaded
# hook has done so already, and reports when the process ends. It can be required by hand as well; the settings are
# those of the MEMINTRO_… variables.
#
# The program must not notice: nothing is raised here, what goes wrong is said once on standard error, and of memintro's
# own loading only the extension's is among the figures.
require_relative "support/brake"

if Memintro::Brake.on?
  # What the program requires is there, and does nothing.
  $LOAD_PATH.push(File.expand_path("..", __dir__))
  $LOAD_PATH.unshift(File.join(__dir__, "compat/load_path")) if ENV["MEMINTRO_COMPAT"] == "mwrap"
elsif !defined?(Memintro::ProcessReport)
  begin
    require_relative "support/native"
    Memintro::Native.load_hook
    Memintro::Native.untracked_enter
    begin
      require_relative "../memintro"
      require_relative "integrations/process_report"
      Memintro::ProcessReport.new(Memintro.configuration).install
    ensure
      Memintro::Native.untracked_leave
    end
  rescue StandardError, ScriptError => e
    begin
      # Not `warn`, which -W0 silences and programs redefine.
      STDERR.write("memintro: not tracking process #{Process.pid}: #{e.message}\n")
    rescue StandardError
      nil # without standard error there is nobody to tell
    end
  end
end
