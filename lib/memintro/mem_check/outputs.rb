# frozen_string_literal: true

require_relative "../version"
require_relative "../support/user_files"
require_relative "../support/json_text"
require_relative "../support/names"
require_relative "finding"

module Memintro
  module MemCheck
    # Writes findings for other programs: JUnit, SARIF, and annotations for GitHub.
    # @api private
    module Outputs
      XML = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", "\"" => "&quot;", "\n" => "&#10;" }.freeze
      private_constant :XML

      # @param config [Configuration]
      # @param findings [Array<Finding>]
      # @param trouble [String, nil] if there is none, why
      # @return [nil]
      # @raise [Error] if a file cannot be written
      def self.write(config, findings, trouble: nil)
        UserFiles.save(config.junit, junit(config, findings, trouble)) if config.junit
        UserFiles.save(config.sarif, sarif(findings)) if config.sarif
        annotations(findings, trouble).each { |line| $stdout.puts(line) } if config.annotations
        nil
      end

      # Each finding is a failed test; without findings there is one passed test.
      def self.junit(config, findings, trouble)
        cases = findings.map do |one|
          file = one.place.file && " file=\"#{xml(one.place.file)}\""
          "  <testcase classname=\"mem_check\" name=\"#{xml(one.title)}\"#{file}>\n" \
            "    <failure type=\"#{one.kind}\" message=\"#{xml(one.title)}\">#{xml(one.lines.join("\n"))}</failure>\n" \
            "  </testcase>\n"
        end
        if trouble
          cases << "  <testcase classname=\"mem_check\" name=\"check\">\n" \
                   "    <error message=\"#{xml(trouble)}\"/>\n  </testcase>\n"
        elsif cases.empty?
          cases << "  <testcase classname=\"mem_check\" name=\"#{xml(config.called)}\"/>\n"
        end
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" \
          "<testsuite name=\"mem_check\" tests=\"#{cases.size}\" failures=\"#{findings.size}\" " \
          "errors=\"#{trouble ? 1 : 0}\">\n" \
          "#{cases.join}</testsuite>\n"
      end
      private_class_method :junit

      # Characters that XML 1.0 cannot represent are escaped as everywhere in memintro.
      def self.xml(text)
        Names.utf8(text.to_s).gsub(/[&<>"\n]/, XML).gsub(/[\x00-\x08\x0b-\x1f\u{fffe}\u{ffff}]/, "?")
      end
      private_class_method :xml

      def self.sarif(findings)
        rules = findings.map(&:kind).uniq.map do |kind|
          { "id" => kind, "shortDescription" => { "text" => Finding::KINDS.fetch(kind) },
            "help" => { "text" => Finding::ADVICE.fetch(kind) } }
        end
        tool = { "driver" => { "name" => "memintro mem_check", "version" => VERSION, "rules" => rules } }
        run = { "tool" => tool, "results" => findings.map { |one| result(one) } }
        log = { "$schema" => "https://json.schemastore.org/sarif-2.1.0.json", "version" => "2.1.0", "runs" => [run] }
        "#{JsonText.dump(log)}\n"
      end
      private_class_method :sarif

      def self.result(finding)
        { "ruleId" => finding.kind, "level" => "error", "message" => { "text" => finding.lines.join("\n") },
          "partialFingerprints" => { "memintro/v1" => finding.fingerprint },
          "locations" => [location(finding.place)].compact,
          "stacks" => [{ "frames" => finding.frames.map { |frame| frame_of(frame) } }] }
      end
      private_class_method :result

      def self.frame_of(frame)
        { "location" => { **(location(frame) || {}), "message" => { "text" => frame.to_s } } }
      end
      private_class_method :frame_of

      def self.location(frame)
        return unless frame.file

        region = frame.line ? { "region" => { "startLine" => frame.line } } : {}
        { "physicalLocation" => { "artifactLocation" => { "uri" => uri(frame.file) }, **region } }
      end
      private_class_method :location

      # Relative below the current folder, because GitHub shows such paths.
      def self.uri(file)
        path = relative(file)
        path = path.b.gsub(%r{[^A-Za-z0-9/._~-]}) { |byte| format("%%%02X", byte.ord) }
        path.start_with?("/") ? "file://#{path}" : path
      end
      private_class_method :uri

      def self.relative(file)
        file.delete_prefix("#{Dir.pwd}/")
      end
      private_class_method :relative

      def self.annotations(findings, trouble)
        lines = findings.map do |one|
          at = one.place.file ? " file=#{property(relative(one.place.file))},line=#{one.place.line || 1}," : " "
          "::error#{at}title=#{property('memory check')}::#{data(one.lines.join("\n"))}"
        end
        trouble ? lines << "::error title=memory check::#{data(trouble)}" : lines
      end
      private_class_method :annotations

      def self.data(text)
        Names.utf8(text).gsub("%", "%25").gsub("\r", "%0D").gsub("\n", "%0A")
      end
      private_class_method :data

      def self.property(text)
        data(text).gsub(":", "%3A").gsub(",", "%2C")
      end
      private_class_method :property
    end
  end
end
