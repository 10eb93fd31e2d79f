# frozen_string_literal: true

require_relative "remote"
require_relative "../support/names"
require_relative "../support/units"

module Memintro
  module CLI
    # `memintro hunt PID`.
    class HuntIn < Remote
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro hunt [options] PID|NAME…

        Has a running process find by itself what grows, and shows what it has found. It looks at itself every
        minute, for at most 0.2% of a core. When something grows for sure, it tracks for some minutes what tells the
        line, asks who holds it, and keeps a finding. It hunts on until it ends, or until --stop.

        #{TARGET}
      TEXT
      # What it sends.
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

      private

      def arguments
        { action: @action || "start", every: @every }.compact
      end

      def show(listener, answer)
        findings = answer["findings"]
        @out.puts("#{who(listener)} #{state(answer)}#{'.' if findings.empty?}#{':' unless findings.empty?}")
        findings.each { |finding| @out.puts("", *lines(finding)) }
        return if findings.any? || !answer["hunting"]

        @out.puts("It needs some minutes. Ask again: memintro hunt #{listener.pid}")
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
        lines = [finding["sentence"], finding["advice"]]
        lines << "It has ended at #{finding['ended_at']}." if finding["ended_at"]
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
