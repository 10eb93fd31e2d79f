# frozen_string_literal: true

require_relative "../command"
require_relative "../launch"

module Memintro
  module CLI
    # `memintro env`: prints the variables that {Run} would set, on one line, for the shell, a Dockerfile or a systemd
    # unit.
    class Env < Command
      # The name of the command.
      NAME = "env"
      # Its purpose, for the list of commands.
      SUMMARY = "print the environment variables that `run` sets"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro env [options of memintro run] [--for docker|systemd]

        Prints the environment variables that `memintro run` sets, on one line. Use it where you cannot put memintro
        run in front of the command:
          eval "$(memintro env --report /tmp/%p.txt) ruby app.rb"
      TEXT
      # The settings that are flags.
      SETTINGS = Launch::SETTINGS
      # Syntaxes for the variables.
      SYNTAXES = %w[shell docker systemd].freeze

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--for SYNTAX", "shell (default), docker: a Dockerfile's ENV,",
                    "systemd: a unit's Environment=") { |syntax| @syntax = known(syntax) }
        end
      end

      # @param arguments [Array<String>] must be empty
      # @return [Integer]
      def run(arguments)
        unless arguments.empty?
          raise UsageError, "env takes no command (#{arguments.first.inspect}); to run one, write memintro run -- " \
                            "#{arguments.first}"
        end

        launch = Launch.new(given).check
        @out.puts(public_send(@syntax || "shell", launch))
        0
      end

      # @api private
      def shell(launch)
        require "shellwords"
        launch.variables.map { |name, value| "#{name}=#{Shellwords.escape(value.b)}" }.join(" ")
      end

      # The values of the image are known only when it is built, so the line refers to them.
      # @api private
      def docker(launch)
        settings = launch.settings.map { |name, value| "#{name}=#{docker_quote(value.b)}" }
        library = launch.library.map { |name, folder| "#{name}=\"#{docker_text(folder)}${#{name}:+:$#{name}}\"" }
        ["ENV LD_PRELOAD=\"#{docker_text(launch.hook)}${LD_PRELOAD:+:$LD_PRELOAD}\"", *settings, *library,
         "RUBYOPT=\"#{docker_text(launch.require_flag)}${RUBYOPT:+ $RUBYOPT}\""].join(" ")
      end

      # @api private
      def systemd(launch)
        variables = { "LD_PRELOAD" => launch.hook, **launch.settings, **launch.library,
                      "RUBYOPT" => launch.require_flag }
        # `%` begins a specifier in a unit; quotes and backslashes are C's.
        quoted = variables.map do |name, value|
          "\"#{name}=#{value.b.gsub(/["\\]/) { |char| "\\#{char}" }.gsub('%', '%%')}\""
        end
        "Environment=#{quoted.join(' ')}"
      end

      private

      def known(syntax)
        return syntax if SYNTAXES.include?(syntax)

        raise UsageError, "--for is #{syntax.inspect}; it must be #{SYNTAXES.join(' or ')}"
      end

      def docker_quote(value)
        value.match?(%r{\A[\w./%:-]+\z}) ? value : "\"#{docker_text(value)}\""
      end

      def docker_text(value)
        value.gsub(/["\\$]/) { |char| "\\#{char}" }
      end
    end
  end
end
