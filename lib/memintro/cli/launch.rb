# frozen_string_literal: true

require_relative "../support/paths"
require_relative "../support/output_target"
require_relative "../support/settings"

module Memintro
  module CLI
    # The variables that track a command from its start: the hook first in `LD_PRELOAD`, the settings, and `RUBYOPT`, by
    # which each Ruby connects to the hook and writes a report.
    class Launch
      # The settings of a start.
      SETTINGS = Settings::ALL.map(&:name).freeze
      # Characters at which `LD_PRELOAD` splits or expands; `RUBYOPT` also splits at white space. Neither can be quoted.
      UNSPEAKABLE = /[\s:;$]/
      private_constant :UNSPEAKABLE

      # @param given [Hash{Symbol => Object}] settings given as flags
      def initialize(given)
        @given = given
      end

      # @raise [Failure] if a tracked start cannot work here
      # @return [self]
      def check
        unless RUBY_PLATFORM.match?(/linux/) && !RUBY_PLATFORM.match?(/musl/)
          raise Failure, "needs Linux with glibc, and this is #{RUBY_PLATFORM}; see memintro doctor"
        end

        check_mode
        problem = File.exist?(Paths.hook) ? Paths.damage(Paths.hook) : "there is no #{Paths.hook}"
        return check_report unless problem

        raise Failure, "the hook is not built: #{problem}. In a checkout run bin/setup; for an installed gem run " \
                       "`gem pristine memintro`."
      end

      # @return [Hash{String => String}] all of them, prepended to the values in this process's environment
      def variables
        { "LD_PRELOAD" => Paths.before(hook, ENV["LD_PRELOAD"], ":"), **settings, **beginning, **rubies,
          **library.transform_values { |folder| Paths.before(folder, ENV["RUBYLIB"], ":") },
          "RUBYOPT" => Paths.before(require_flag, ENV["RUBYOPT"], " ") }
      end

      # @return [String] the required beginning of `LD_PRELOAD`
      def hook
        speakable(Paths.hook)
      end

      # @param file [String] the file that each Ruby process requires
      # @return [String] the required beginning of `RUBYOPT`
      def require_flag(file = Paths::AUTORUN)
        "-r#{speakable(file)}"
      end

      # @return [Hash{String => String}] the settings, from flags or else from variables. Paths are absolute, because
      #   the command may change its folder.
      def settings
        texts = [Settings[:mode], *Settings::ALL].to_h { |setting| [setting.variable, text(setting)] }
        texts.reject { |_, text| text.nil? || text.empty? }
      end

      # @return [Hash{String => String}] for `ruby -rmwrap`, which comes before the files that `RUBYOPT` requires
      def library
        effective(:compat) == :mwrap ? { "RUBYLIB" => speakable(Paths::COMPAT) } : {}
      end

      # @return [Hash{String => String}] for a program that `MEMINTRO_DISABLE=1` keeps from being tracked, and that
      #   requires files which it would find if it were tracked
      def disabled
        ours = [*library.values, *ENV["RUBYLIB"].to_s.split(":"), speakable(Paths::LIB)]
        { "RUBYLIB" => ours.reject(&:empty?).uniq.join(":") }
      end

      # @return [Hash{String => String}] distinguishes a report of this run from an earlier one of the same name. Not
      #   for programs that start repeatedly with the same variables.
      def beginning
        file = settings["MEMINTRO_REPORT"]
        file.nil? || file == "-" || file.include?("%p") ? {} : { OutputOwner::SINCE => OutputOwner.now }
      end

      # @return [Hash{String => String}] the Rubies with an extension: the hook ignores others. Not for variables in a
      #   file, which may outlive an update.
      def rubies
        { "MEMINTRO_RUBIES" => Paths.rubies.join(",") }.reject { |_, text| text.empty? }
      end

      # @param command [Array<String>] the program that this process becomes; no parent process remains between the
      #   command and its signals, streams or exit status
      # @param environment [Hash{String => String}]
      # @raise [Failure] if it cannot
      def become(command, environment)
        exec(environment, [command.first, command.first], *command.drop(1))
      rescue Errno::ENOENT
        raise Failure.new("#{command.first}: command not found", 127)
      rescue Errno::EACCES, Errno::ENOEXEC, Errno::EISDIR => e
        raise Failure.new("#{command.first}: cannot be run: #{e.message.sub(/ - .*/m, '')}", 126)
      end

      private

      # @return [Object, nil] value of a flag, or else of a variable
      def effective(name)
        @given.fetch(name) do
          text = text(Settings[name])
          Settings[name].parse(text) if text
        end
      rescue ArgumentError
        nil # the processes themselves say so
      end

      def text(setting)
        given = @given[setting.name]
        text = given.nil? ? ENV[setting.variable] : setting.to_variable(given)
        case setting.name
        when :mode then text.to_s.empty? ? setting.default.to_s : text
        when :report, :app_root then absolute(text)
        else text
        end
      end

      def absolute(file)
        file.to_s.empty? || file == "-" ? file : Files.absolute(file)
      end

      def check_mode
        return if @given[:sample_bytes].nil? || effective(:mode) == :sampled

        raise Failure, "--sample-bytes #{@given[:sample_bytes]} is for sampled mode: add --mode sampled"
      end

      # Checked now rather than by every process at its end.
      def check_report
        called, file = @given[:report] ? ["--report", @given[:report]] : ["MEMINTRO_REPORT", ENV["MEMINTRO_REPORT"]]
        file = nil if file.to_s.empty?
        check_native_children(file)
        trouble = OutputTarget.trouble(file)
        raise Failure, "#{called} #{file}: #{trouble}" if trouble

        self
      end

      # The hook writes these dumps itself, one for each process, and supports only %p.
      def check_native_children(file)
        return if !effective(:native_children) || file.to_s.include?("%p")

        raise Failure, "--native-children needs a file for each process: give --report FILE with %p in it"
      end

      def speakable(path)
        return path unless path.match?(UNSPEAKABLE)

        require_relative "alias_folder"
        AliasFolder.path_for(path)
      end
    end
  end
end
