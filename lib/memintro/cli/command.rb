# frozen_string_literal: true

require_relative "../support/files"

module Memintro
  module CLI
    # The base of the subcommands: an option parser with help, made from the table of settings.
    #
    # A subcommand is a file in `cli/commands`. It defines its name in `NAME`, its purpose in `SUMMARY`, its usage in
    # `BANNER` and its settings in `SETTINGS`, adds flags of its own in `options`, and does its work in
    # `run(arguments)`, which returns an exit code.
    class Command
      # Settings that become flags.
      SETTINGS = [].freeze

      # @return [Array<Class>] all that are loaded
      def self.all = subclasses.flat_map { |one| [one, *one.all] }

      # @param name [String]
      # @return [Class]
      def self.named(name)
        all.find { |one| one.const_defined?(:NAME, false) && one::NAME == name }
      end

      # @param out [IO]
      def initialize(out)
        @out = out
        @given = {}
      end

      # @param argv [Array<String>]
      # @return [Integer] the exit code
      def call(argv)
        parser = options
        # The parser compares text, but the name of a file may be any bytes.
        arguments = parse(parser, argv.map { |word| word.valid_encoding? ? word : word.b })
        return run(arguments) unless @help

        @out.puts(parser.help)
        0
      end

      # @return [OptionParser]
      def options
        OptionParser.new do |parser|
          parser.banner = self.class::BANNER
          list_settings(parser) if settings.any?
          yield parser if block_given?
          parser.on("-h", "--help", "show this help") { @help = true }
        end
      end

      private

      # @return [Hash{Symbol => Object}] the values of the flags that were given
      attr_reader :given

      def parse(parser, argv)
        parser.permute(argv)
      end

      # As {#parse}, where all words after -- belong to the command that is run.
      #
      # @yieldparam rest [Array<String>] words before it that are not flags
      # @yieldreturn [String] the error about them
      def parse_before_command(parser, argv)
        at = argv.index("--")
        return parser.permute(argv) unless at

        rest = parser.permute(argv.take(at))
        raise UsageError, yield(rest) unless rest.empty?

        @command = true
        argv.drop(at + 1)
      end

      def settings
        self.class::SETTINGS.map { |name| Settings[name] }
      end

      def list_settings(parser)
        first = settings.first
        parser.separator("\nOptions that have a variable each (#{first.flag} is #{first.variable}):")
        settings.each { |setting| flag(parser, setting) }
        parser.separator("\nOther options:")
      end

      def flag(parser, setting)
        form = form_of(setting)
        # The flag of head and top.
        short = ["-n"] if setting.name == :top
        parser.on(*short, form, *setting.help) do |text|
          @given[setting.name] = setting.argument && text ? value(setting, text) : text != false
        end
      end

      # With "=" in brackets, the word after the flag is never taken for its argument.
      def form_of(setting)
        return setting.negatable ? setting.flag.sub("--", "--[no-]") : setting.flag unless setting.argument

        setting.without_argument ? "#{setting.flag}[=#{setting.argument}]" : "#{setting.flag} #{setting.argument}"
      end

      # @param file [String]
      # @return [String] absolute, since the program may change its folder
      def absolute(file)
        Files.absolute(file)
      rescue Error => e
        raise Failure, e.message
      end

      # @return [Numeric] the value of a flag that is not a setting
      def seconds(flag, text)
        Settings[:every].parse(text, flag)
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def value(setting, text)
        text = text.dup.force_encoding(Encoding.find("locale")) if setting.kind == :text
        setting.parse(text, setting.flag)
      rescue ArgumentError => e
        raise UsageError, e.message
      end
    end
  end
end
