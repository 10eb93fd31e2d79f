# frozen_string_literal: true

require_relative "../../support/units"

module Memintro
  class Doctor
    # The findings in words.
    class Text
      # In words, by origin.
      ORIGINS = {
        preloaded: "preloaded: it sees every allocation since the process started",
        loaded: "loaded into the running process: while tracking is on, it sees the calls of the slots that it patched",
        none: "not loaded"
      }.freeze
      # In words, by state.
      STATES = {
        foreign: "held another function before memintro was loaded, and was left alone",
        lost: "was patched and has been overwritten since",
        malformed: "the module could not be read and was skipped",
        refused: "the kernel would not make the page writable"
      }.freeze
      # Most slots that are listed one by one.
      LISTED = 20

      # @param doctor [Doctor]
      def initialize(doctor)
        @doctor = doctor
      end

      # @return [String]
      def to_s
        [*facts, *section("Problems", @doctor.problems), *section("Notes", @doctor.notes),
         *section("Left alone", left_alone), *section("Never seen", @doctor.escapes)].join("\n") << "\n"
      end

      private

      def facts
        ["memintro #{@doctor.memintro}, ruby #{@doctor.ruby}, #{@doctor.platform}",
         "hook       #{ORIGINS.fetch(@doctor.origin)}",
         *(@doctor.hook && "           #{@doctor.hook}"),
         "mode       #{@doctor.mode}",
         "allocator  #{@doctor.allocator || 'not found'}",
         "slots      #{slots}"]
      end

      def slots
        return "none patched while tracking is off" if @doctor.mode == :off

        counts = @doctor.slots.select { |_, count| count.positive? }.map { |state, count| "#{count} #{state}" }
        found = "#{counts.join(', ')} in #{Units.counted(@doctor.modules, 'module')}"
        @doctor.origin == :preloaded ? "malloc and its relatives need none; others: #{found}" : found
      end

      def left_alone
        entries = @doctor.left_alone
        lines = entries.first(LISTED).map do |entry|
          "#{entry[:module]}#{" #{entry[:symbol]}" if entry[:symbol]}: #{STATES[entry[:state]]}"
        end
        rest = entries.size - LISTED
        rest.positive? ? [*lines, "and #{rest} more"] : lines
      end

      def section(title, items)
        items.empty? ? [] : ["", "#{title}:", *items.map { |item| "  - #{item}" }]
      end
    end
  end
end
