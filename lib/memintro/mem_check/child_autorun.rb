# frozen_string_literal: true

# In a memory check, each Ruby process of the tests requires this file. It raises nothing: the tests run even if
# memintro fails, and then the check has no verdict.
require_relative "../support/brake"

unless Memintro::Brake.on? || defined?(Memintro::MemCheck::Child) || !ENV.key?("MEMINTRO_CHECK_FOLDER")
  begin
    require_relative "../support/native"
    Memintro::Native.load_hook
    Memintro::Native.untracked_enter
    begin
      require_relative "../../memintro"
      require_relative "child"
      Memintro::MemCheck::Child.new(ENV.to_h).install
    ensure
      Memintro::Native.untracked_leave
    end
  rescue StandardError, ScriptError => e
    begin
      File.write(File.join(ENV.fetch("MEMINTRO_CHECK_FOLDER"), "#{Process.pid}.failed"), e.message)
    rescue SystemCallError
      nil # the folder is gone: it is not waited for any more
    end
    begin
      STDERR.write("memintro: not checking process #{Process.pid}: #{e.message}\n")
    rescue StandardError
      nil # without standard error there is no reader
    end
    Memintro::Paths.forget unless defined?(Memintro::Native)
  end
end
