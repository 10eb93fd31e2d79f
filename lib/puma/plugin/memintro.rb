# frozen_string_literal: true

# `plugin :memintro` in config/puma.rb: every minute (`MEMINTRO_PUMA_EVERY` says how many seconds) a line in Puma's log
# for the process, or in cluster mode for the master, each worker and their total.
require "puma/plugin"
require_relative "../../memintro"
require_relative "../../memintro/integrations/puma_report"

Puma::Plugin.create do
  def start(launcher)
    return if Memintro::Brake.holds?

    seconds = Memintro::PumaReport.seconds
    in_background { Memintro::PumaReport.new(launcher).run(seconds) }
  end
end
