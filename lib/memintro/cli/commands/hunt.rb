# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/names"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro hunt PID`.
    class HuntCommand < Remote
      # The name of the command.
      NAME = "hunt"
      # Its purpose, for the list of commands.
      SUMMARY = "let a running process find what grows, and show its findings"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro hunt [options] PID|NAME…

        Has a running process find by itself what grows, and shows what it has found. It looks at itself every
        minute, for at most 0.2% of a core. When something grows for sure, it tracks for some minutes what tells the
        line, asks who holds it, and keeps a finding. It hunts on until it ends, or until --stop.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "hunt"

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--every SECONDS", "from one look to the next; default 60; of a new hunt") do |text|
            @every = seconds("--every", text)
          end
          parser.on("--show", "only show what was found: begin no hunt") { @action = "show" }
          parser.on("--stop", "end the hunt; what was found stays") { @action = "stop" }
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer]
      def run(words)
        return super unless @workers && !json?

        answers = []
        code = over_all(targets(words), apart: false) do |listener|
          asked = client(listener)
          answers << [listener, asked.ask_json(COMMAND, arguments)]
          listener.called = asked.program
        end
        answers.size > 1 ? show_all(answers) : answers.each { |pair| show(*pair) }
        code
      end

      private

      def arguments
        { action: @action || "start", every: @every }.compact
      end

      def show(listener, answer)
        findings = answer["findings"]
        @out.puts("#{who(listener)} #{state(answer)}#{'.' if findings.empty?}#{':' unless findings.empty?}")
        findings.each { |finding| @out.puts("", *lines(finding)) }
        return unless answer["hunting"]

        @out.puts("") if findings.any?
        @out.puts(*going_on(answer), *("Ask again #{soon(answer)}: memintro hunt #{listener.pid}" if findings.empty?))
      end

      # A suspicion needs six or seven looks, and an investigation five readings in the time of two looks.
      def soon(answer)
        looks = answer["state"] == "investigating" ? 2 : [9 - answer["looks"].to_i, 2].max
        seconds = [answer["every"].to_f * looks, answer["next_look_s"].to_f].max
        "in about #{Units.duration(seconds)}"
      end

      # Its present state, and the time of its next look.
      def going_on(answer)
        suspects = Array(answer["suspects"])
        if answer["state"] == "investigating"
          more = " and #{Units.count(suspects.size - 1)} more" if suspects.size > 1
          return [Names.printable("It investigates what seems to grow: #{suspects.first}#{more}. That takes minutes.")]
        end
        return ["It looks now."] unless answer["next_look_s"]

        ["It looks next in #{Units.duration(answer['next_look_s'])}#{reason(answer)}.",
         *("What grows shows after six looks at least, and is investigated then." if answer["findings"].empty?)]
      end

      def reason(answer)
        return if answer["pause_s"].to_f <= answer["every"].to_f

        ", and not sooner, because it has taken #{format('%.1f', answer['cpu_seconds'])} s of processor time so far, " \
          "and takes at most 0.2% of a core"
      end

      # Findings of several processes in one list, the fastest growth first.
      def show_all(answers)
        # A forked child also has the findings of its parent.
        found = answers.flat_map { |_, answer| answer["findings"] }
        found.uniq! { |one| one.values_at("pid", "found_at", "what") }
        hunting = answers.count { |_, answer| answer["hunting"] }
        @out.puts("#{hunting} of #{answers.size} processes hunt: #{Units.counted(found.size, 'finding')} so far" \
                  "#{found.empty? ? '.' : ':'}")
        groups = found.group_by { |one| one.values_at("kind", "what", "site") }.values
        groups.sort_by { |group| -speed(group) }.each { |group| @out.puts("", *lines_of_group(group)) }
        answers.each { |listener, answer| @out.puts("", "#{who(listener)} #{state(answer)}.") unless answer["hunting"] }
      end

      def speed(group) = group.sum { |one| one["bytes_per_minute"] }

      # Shows the fastest in full, and for the others of the same kind and line only their processes.
      def lines_of_group(group)
        first, *rest = group.sort_by { |one| -one["bytes_per_minute"] }
        return lines(first) if rest.empty?

        others = rest.map do |one|
          ended = ", ended at #{one['ended_at']}" if one["ended_at"]
          Names.printable("the same in process #{one['pid']}: ~#{Units.bytes(one['bytes_per_minute'])} a minute " \
                          "since #{one['since']}#{ended}")
        end
        together = "together ~#{Units.bytes(speed(group))} a minute in #{Units.counted(group.size, 'finding')}"
        [*lines(first), *others, together]
      end

      def state(answer)
        found = Units.counted(answer["findings"].size, "finding")
        return "does not hunt, and has kept #{found}" unless answer["hunting"] || answer["hunted"]
        return "has stopped to hunt, after #{found}" unless answer["hunting"]

        began = answer["hunted"] ? "hunts" : "hunts from now on"
        "#{began}: #{found} so far, #{Units.counted(answer['looks'].to_i, 'look')} for " \
          "#{format('%.3f', answer['cpu_share'].to_f * 100)}% of a core"
      end

      def lines(finding)
        lines = finding.values_at("sentence", "certainty", "advice")
        lines << "stack: #{finding['stack'].join(' ← ')}" if finding["stack"].size > 1
        lines.concat(finding["holders"].map { |way| "held: #{way}" })
        lines << "with it: #{finding['also'].join(', ')}" unless finding["also"].empty?
        lines.concat(finding["notes"].map { |note| "note: #{note}" })
        lines << "found at #{finding['found_at']} in process #{finding['pid']}, which tracked #{finding['tracking']}"
        lines.map { |line| Names.printable(line) }
      end
    end
  end
end
