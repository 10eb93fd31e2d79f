# frozen_string_literal: true

desc "Write what other files need of the settings in lib/memintro/support/settings.rb"
task :settings do
  require_relative "settings/files"
  SettingFiles.new.write
end
