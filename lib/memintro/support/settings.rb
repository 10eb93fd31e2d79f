# frozen_string_literal: true

require_relative "arguments"
require_relative "brake"
require_relative "defaults"
require_relative "figures"
require_relative "tracked_classes"

module Memintro
  # All settings. The name here is also the attribute in {Configuration}, the flag (`--max-sites`) and the variable
  # (`MEMINTRO_MAX_SITES`). Plain Ruby without the extension, because the command must start quickly.
  module Settings
    # Figures by which a report can be sorted.
    SORTABLE = Figures::SORTABLE

    # One setting, with all that is known of it; `rake settings` writes what other files need.
    #
    # - `kind`; `allowed`, the list of its choices or its greatest number; `least`, its least number
    # - `default`: its value if it is not set
    # - `hook`: the hook reads it, as a number; its value there if it is not set, :none for no limit
    # - `start`: {Memintro.start} takes it
    # - `plain`: {Defaults} reads its variable
    # - `argument`: that of its flag; `without_argument`: its flag may come without one; `negatable`: there is also a
    #   flag `--no-…`; `help`: lines for the command
    # - `type`: for sig/; `about` and `otherwise`: its meaning, and its default in words, for docs/settings.md and YARD
    #
    # In `help` and `otherwise`, `%<default>s` is the default, and `%<least>s` the least number.
    #
    # `parse` turns text into a value, `check` raises an error for wrong values; both use the name that the caller
    # knows.
    Setting = Struct.new(:name, :kind, :allowed, :least, :default, :hook, :start, :plain, :argument, :without_argument,
                         :negatable, :help, :type, :about, :otherwise, keyword_init: true) do
      # @return [String] such as `MEMINTRO_MAX_SITES`
      def variable
        "#{Defaults::PREFIX}#{name.to_s.upcase}"
      end

      # @return [String] such as `--max-sites`
      def flag
        "--#{name.to_s.tr('_', '-')}"
      end

      # @param text [String]
      # @param called [String] name of the setting, for the message
      # @return [Object] the value
      # @raise [ArgumentError]
      def parse(text, called = variable)
        value = Settings.value_of(kind, text, allowed || most)
        return value unless value.nil? || few?(value)

        beyond = value.nil? && most && Settings.value_of(kind, text, Float::INFINITY)
        raise ArgumentError, "#{called} is #{text.inspect}; it must be #{expected(beyond)}"
      end

      # @param value [Object]
      # @return [Object] the value, normalised
      # @raise [ArgumentError]
      def check(value)
        return value if value.nil?

        checked = Settings.checked(kind, value, allowed || most)
        return checked unless checked.nil? || few?(checked)

        beyond = checked.nil? && most && Settings.checked(kind, value, Float::INFINITY)
        words = kind == :switch ? "true or false" : expected(beyond)
        raise ArgumentError, "#{name} is #{value.inspect}; it must be #{words}#{', or nil' if default.nil?}"
      end

      # @param value [Object]
      # @return [String] as it stands in the variable
      def to_variable(value)
        return value ? "1" : "0" if [true, false].include?(value)

        value.is_a?(Array) ? value.join(",") : value.to_s
      end

      # @return [Integer, nil] greatest value of those that are numbers
      def most
        { count: Arguments::MOST, count_or_all: Arguments::MOST, seconds: Arguments::MOST_SECONDS }[kind]
      end

      # @param beyond [Object] whether it is the greatest value that was passed
      # @return [String] the values that the flag and the variable allow, in words
      def expected(beyond = nil)
        limit = " and at most #{most}" if beyond
        case kind
        when :choice then allowed.join(" or ")
        when :count then "a whole number #{allowed ? "from #{from} to #{allowed}" : "of at least #{from}#{limit}"}"
        when :count_or_all then "a whole number of at least 1#{limit}, or all"
        when :seconds then "a number of seconds above 0#{limit}"
        when :switch then "1 or 0"
        when :objects then "1, 0, sampled, or names of classes such as Message,Hash"
        else "a text that is not empty"
        end
      end

      private

      def from
        least || 1
      end

      def few?(value)
        kind == :count && value < from
      end
    end

    # @api private
    # @return [Object, nil] nil: not allowed
    def self.value_of(kind, text, allowed)
      case kind
      when :choice then allowed.find { |choice| choice.to_s == text }
      when :count then within(Integer(text, 10), allowed) if text.match?(/\A[1-9]\d*\z/)
      when :count_or_all then text == "all" ? :all : value_of(:count, text, allowed)
      when :seconds
        seconds = Float("0#{text}") if text.match?(/\A\d*\.?\d+\z/)
        within(seconds, allowed) if seconds&.positive?
      when :switch then { "1" => true, "0" => false }[text]
      when :objects then objects_of(text)
      else text unless text.empty?
      end
    end

    # @api private
    # @return [Object, nil] nil: not allowed
    def self.checked(kind, value, allowed)
      case kind
      when :switch then value if [true, false].include?(value)
      when :objects then TrackedClasses.checked(:objects, value)
      when :count, :count_or_all, :seconds
        value == :all ? value_of(kind, "all", allowed) : within(number(kind, value), allowed)
      else value_of(kind, value.to_s, allowed) if value.is_a?(String) || value.is_a?(Symbol)
      end
    end

    def self.objects_of(text)
      return text == "1" if %w[1 0].include?(text)
      return :sampled if text == "sampled"

      names = text.split(",", -1).map(&:strip)
      names.uniq.each(&:freeze).freeze if names.any? && names.all? { |name| TrackedClasses.name?(name) }
    end
    private_class_method :objects_of

    def self.within(number, most)
      number if number && (most.nil? || number <= most)
    end
    private_class_method :within

    def self.number(kind, value)
      value if (value.is_a?(Integer) || (kind == :seconds && value.is_a?(Float))) && value.positive?
    end
    private_class_method :number

    # In the order in which help lists them.
    ALL = [
      Setting.new(name: :report, kind: :text, plain: true, argument: "FILE", type: "String?",
                  help: ["write the report at exit to FILE; %p in it becomes the process id;",
                         "default, and the meaning of -: standard error"],
                  about: "file of the report at exit; `%p` becomes the process id; `-` is standard error",
                  otherwise: "`-`"),
      Setting.new(name: :format, kind: :choice, allowed: Defaults::FORMATS.keys.freeze, default: :text,
                  argument: "FORMAT", type: "format",
                  help: ["text (default), json, or html: a page with a flame graph; of whole",
                         "stacks also folded or speedscope"],
                  about: "`text`, `json` or [`html`](flame_graph.md); of whole [stacks](stacks.md) also `folded` or " \
                         "`speedscope`", otherwise: "`text`"),
      Setting.new(name: :top, kind: :count_or_all, argument: "N", type: "Integer | :all | nil",
                  help: ["number of call sites, or all; default #{Defaults::TOP} in text, all in json and html"],
                  about: "number of call sites to show, or `all`",
                  otherwise: "#{Defaults::TOP}; `all` in JSON"),
      Setting.new(name: :by, kind: :choice, allowed: SORTABLE, argument: "FIGURE", type: "figure?",
                  help: ["sort by live_bytes (default; with --objects retained_bytes), growth,",
                         "total_bytes, allocations, …"],
                  about: "what to sort by: `live_bytes`, `growth`, `total_bytes`, `allocations`, …",
                  otherwise: "`live_bytes`; with `--objects` `retained_bytes`"),
      Setting.new(name: :every, kind: :seconds, argument: "SECONDS", type: "Numeric?",
                  help: ["also write the report every SECONDS, in a thread of its own"],
                  about: "seconds between reports while the program runs", otherwise: "only at exit"),
      Setting.new(name: :app_root, kind: :text, plain: true, argument: "FOLDER", type: "String?",
                  help: ["show paths relative to FOLDER; default: where the command starts"],
                  about: "folder that paths are shown relative to", otherwise: "where the command starts"),
      Setting.new(name: :compat, kind: :choice, allowed: %i[mwrap].freeze, argument: "NAME", type: ":mwrap | nil",
                  help: ['mwrap: make `require "mwrap"` work'],
                  about: '`mwrap`: a plain `require "mwrap"` works', otherwise: ""),
      Setting.new(name: :native_children, kind: :switch, default: false, type: "bool",
                  help: ["also track processes that are not Ruby; needs %p in --report"],
                  about: "`1`: also track processes that are not Ruby; the report needs a `%p`", otherwise: "`0`"),
      Setting.new(name: :mode, kind: :choice, allowed: Defaults::MODES.keys.freeze, default: :full, start: true,
                  plain: true, argument: "MODE", type: "mode",
                  help: ["full (default): every block, exactly;",
                         "sampled: estimates, cheap enough to leave on"],
                  about: "`full`: every block exactly; `sampled`: [estimates](estimates.md)", otherwise: "`full`"),
      Setting.new(name: :sample_bytes, kind: :count, allowed: 2**30, hook: 512 * 1024, start: true, argument: "N",
                  type: "Integer?",
                  help: ["in sampled mode: sample one byte in N on average; default %<default>s"],
                  about: "sampled mode: sample one byte in this many, on average", otherwise: "%<default>s"),
      Setting.new(name: :objects, kind: :objects, default: false, start: true, plain: true, argument: "CLASS,…",
                  without_argument: true, type: "Memintro::objects",
                  help: ["also track Ruby objects by the line that made them, each with its class;",
                         "with =CLASS,… only those of these classes and their subclasses;",
                         "with =sampled a sample of all, as estimates, at a lower cost"],
                  about: "`1`: also track [Ruby objects](objects.md); `Message,Hash`: only these classes; `sampled`: " \
                         "estimates", otherwise: "`0`"),
      Setting.new(name: :stack_depth, kind: :count, allowed: 64, default: 1, hook: 1, start: true, plain: true,
                  argument: "N", type: "Integer",
                  help: ["tell call sites apart by their N innermost lines, whole stacks; default %<default>s"],
                  about: "[lines of Ruby in a call site](stacks.md), 1 to 64", otherwise: "%<default>s"),
      Setting.new(name: :native_callers, kind: :switch, start: true, negatable: true, type: "bool?",
                  help: ["sample the C functions that call malloc for a line, in both modes;",
                         "default: in full mode only; with --no-native-callers never"],
                  about: "`1`: also sample [native callers](native_callers.md) in sampled mode; `0` or " \
                         "`--no-native-callers`: never", otherwise: "in full mode"),
      Setting.new(name: :stop_after, kind: :seconds, start: true, argument: "SECONDS", type: "Numeric?",
                  help: ["stop tracking after SECONDS; the figures stay; takes a thread of its own"],
                  about: "seconds until tracking stops by itself; the figures stay", otherwise: "never"),
      Setting.new(name: :max_sites, kind: :count, allowed: 2**24, hook: 2**20, start: true, argument: "N",
                  type: "Integer?",
                  help: ["tell at most N call sites apart; the rest share (other); default %<default>s"],
                  about: "greatest number of call sites to tell apart; the rest share `(other)`",
                  otherwise: "%<default>s"),
      Setting.new(name: :max_tracker_bytes, kind: :count, least: 4 * 1024 * 1024, hook: :none, start: true,
                  argument: "BYTES", type: "Integer?",
                  help: ["most memory that tracking itself may use; at least %<least>s"],
                  about: "most memory that tracking itself may use, at least %<least>s", otherwise: "no limit")
    ].each do |setting|
      figures = { "%<default>s" => setting.hook.to_s, "%<least>s" => setting.least.to_s }
      setting.help = setting.help.map { |line| line.gsub(/%<\w+>s/, figures).freeze }.freeze
    end.each(&:freeze).freeze

    # @return [Setting]
    def self.[](name)
      ALL.find { |setting| setting.name == name }
    end

    # @return [Boolean] whether `MEMINTRO_LISTEN` wants this process to listen
    def self.listen?
      ENV["MEMINTRO_LISTEN"] == "1" && !@never_listens && !Brake.on?
    end

    # @return [Numeric, nil] seconds between looks of the hunt that `MEMINTRO_HUNT` wants; nil: none
    # @raise [ArgumentError] if it is no number of seconds
    def self.hunt
      text = ENV.fetch("MEMINTRO_HUNT", "")
      return if text.empty? || text == "0" || @never_listens || Brake.on?
      return 60 if text == "1"

      value_of(:seconds, text, Arguments::MOST_SECONDS) or
        raise ArgumentError, "MEMINTRO_HUNT is #{text.inspect}; it must be 1 or a number of seconds above 1"
    end

    # For the `memintro` command, which asks other processes and does not listen itself.
    # @return [void]
    def self.never_listen
      @never_listens = true
    end
  end
end
