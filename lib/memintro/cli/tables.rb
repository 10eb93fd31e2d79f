# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../report/old_sites"

module Memintro
  module CLI
    # Makes tables of a process's call sites. The process answers in JSON, because making texts would make it grow.
    class Tables
      # @param answer [Hash] to `top` or `report`, checked
      # @raise [ControlError] if it has nothing for tables
      def initialize(answer)
        raise ControlError, "the process answered without what a table needs" unless answer["rendering"]

        @answer = answer
        @rendering = answer["rendering"]
      end

      # @param out [IO]
      # @param top [Integer, nil] call sites to show; nil: all
      # @param by [Symbol, nil] nil: what the process sorts by of itself
      # @param older_than_gcs [Integer, nil] collections that the blocks outlived; nil: blocks of any age
      # @return [nil]
      # @raise [ControlError]
      def write(out, top:, by:, older_than_gcs: nil)
        return out.write(old(Style.for(out), older_than_gcs, by)) && nil if older_than_gcs

        sites = CallSites::Reader.from_json(@answer)
        by ||= sites.default_figure
        sites.leave_out(*@rendering.values_at("left_out", "live_bytes", "variance"))
        Memintro::Report.write(sites, out, format: :text, top: top, by: by, app_root: @rendering["app_root"])
      rescue DumpError, TypeError => e
        raise ControlError, "the process answered something that is no report: #{e.message}"
      end

      private

      def old(style, older_than_gcs, by)
        sites = CallSites::Reader.old_sites(@answer)
        head = Memintro::Report::OldSites.head(sites, @answer["process"]["pid"], older_than_gcs, by)
        [head, "", *Memintro::Report::OldSites.lines(sites, Names.new(@rendering["app_root"]), style,
                                                     @answer["process"]["sample_bytes"])].join("\n") << "\n"
      end
    end
  end
end
