# frozen_string_literal: true

module Memintro
  class Doctor
    # The findings in words.
    class Text
      # In words, by origin.
      ORIGINS = {
        preloaded: "preloaded: every allocation since the process started passes it",
        loaded: "loaded into the running process: it sees what it patches, while tracking is on",
        none: "not loaded"
      }.freeze
      # In words, by state.
      STATES = {
        foreign: "held somebody else's function before memintro came, and was left to it",
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
        @doctor.origin == :preloaded ? "none needed for malloc and its like; else #{found}" : found
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
