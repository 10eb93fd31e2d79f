# frozen_string_literal: true

# Each Ruby process of `memintro run` requires this file. It connects Ruby to the hook, starts tracking (unless the
# preloaded hook already tracks), and writes the report when the process ends. You can also require it yourself; the
# settings are those of the MEMINTRO_… variables.
#
# The program must not be affected: this file raises nothing, and reports an error once on standard error. The figures
# include the loading of the extension, but not that of memintro's other code.
require_relative "support/brake" if ENV.key?("MEMINTRO_DISABLE")

if defined?(Memintro::Brake) && Memintro::Brake.on?
  # A later `require` of the program finds it loaded and does nothing.
  $LOAD_PATH.push(File.expand_path("..", __dir__))
  $LOAD_PATH.unshift(File.join(__dir__, "compat/load_path")) if ENV["MEMINTRO_COMPAT"] == "mwrap"
elsif !defined?(Memintro::ProcessReport)
  begin
    # The hook has the same figure (crates/hook/src/state.rs).
    if Process.getrlimit(:AS).first < 256 << 20
      raise "its address space is limited (ulimit -v #{Process.getrlimit(:AS).first >> 10}), and tracking would take " \
            "what Ruby needs; raise the limit to #{256 << 10} or more"
    end

    # A process has one memintro: that of the program, if the program has loaded it before.
    require_relative "support/native" unless defined?(Memintro::Native)
    Memintro::Native.load_hook
    Memintro::Native.untracked_enter
    begin
      require_relative "#{Memintro::Paths::CODE}/integrations/process_report"
      Memintro::ProcessReport.new.install
    ensure
      Memintro::Native.untracked_leave
    end
  rescue StandardError, ScriptError => e
    begin
      # Not `warn`, which -W0 silences and which programs redefine.
      STDERR.write("memintro: not tracking process #{Process.pid}: #{e.message}\n")
    rescue StandardError
      nil # without standard error there is no reader
    end
    Memintro::Paths.forget if defined?(Memintro::Paths) && !defined?(Memintro::Native)
  end
end
