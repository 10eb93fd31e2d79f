# frozen_string_literal: true

require_relative "../malloc/call_site"
require_relative "../support/arguments"
require_relative "liveness"

module Memintro
  module Control
    # The allowed content of the protocol's lines: for each answer, its header and an error, the fields, their types and
    # bounds, and the total size. Any program may listen at the socket, so a wrong field is refused by name, and an
    # unknown field is left out.
    #
    # A kind is a {Kind}; an Array with the kind of all its items and their largest number; or a Hash of kinds by key. A
    # key ends in ? if the field may be missing or null, as with another version of memintro.
    module Schema
      # A value does not match.
      class Invalid < StandardError; end

      # A type with its bounds, and how messages name it.
      Kind = Struct.new(:words, :test)

      # @api private
      def self.whole(range)
        Kind.new("an Integer from #{range.min} to #{range.max}",
                 ->(value) { value.is_a?(Integer) && range.cover?(value) })
      end

      # @api private
      def self.text(most)
        Kind.new("a text of at most #{most} characters", ->(value) { value.is_a?(String) && value.size <= most })
      end

      # @api private
      def self.one_of(*words)
        Kind.new("one of #{words.map(&:inspect).join(', ')}", ->(value) { words.include?(value) })
      end

      # Most bytes of a header's line, and of a line with the size of a piece.
      LONGEST_LINE = 65_536
      # Most characters of a name that a program gives itself, and of a message; servers cut theirs.
      LONGEST_TEXT = 4_096
      # Most characters of a path, which the tracker cuts at 16 KiB, and which is then escaped.
      LONGEST_PATH = 131_072
      # Most bytes of a brief answer.
      BRIEF_BYTES = 65_536
      # Most bytes of a JSON document, and of its values, each of which becomes some 100 bytes.
      MOST_BYTES = 256 << 20
      # See {MOST_BYTES}.
      MOST_VALUES = 12_000_000
      PID = whole(1..Liveness::MOST_PID)
      PARENT = whole(0..Liveness::MOST_PID)
      COUNT = whole(0..(2**64) - 1)
      SIGNED = whole(-(2**63)..(2**63) - 1)
      # Numbers that can be squared and multiplied without becoming infinite.
      NUMBER = Kind.new("a number up to 1e30", ->(value) { value.is_a?(Numeric) && value.abs <= 1e30 })
      FLAG = Kind.new("true or false", ->(value) { [true, false].include?(value) })
      # A short text: a mode, a version, a time.
      WORD = Kind.new("a word of 1 to 64 printable ASCII characters",
                      ->(value) { value.is_a?(String) && value.match?(/\A[!-~]{1,64}\z/) })
      NAME = text(LONGEST_TEXT)
      PATH = text(LONGEST_PATH)
      private_constant :PID, :PARENT, :COUNT, :SIGNED, :NUMBER, :FLAG, :WORD, :NAME, :PATH

      # The first line of an answer.
      HEADER = { "ok" => FLAG, "memintro?" => WORD, "protocol?" => COUNT, "program?" => NAME, "bytes?" => COUNT,
                 "format?" => one_of("json", "text") }.freeze
      # A header with an error.
      REFUSAL = { "ok" => one_of(false), "memintro?" => WORD, "protocol?" => COUNT, "error" => NAME,
                  "message" => NAME }.freeze

      # Fields of an estimate: its standard error, the interval, and what a sample stands for.
      # @api private
      def self.estimates(names)
        names.each_with_object({}) do |name, kinds|
          kinds.update("#{name}_standard_error?" => NUMBER, "#{name}_interval?" => [NUMBER, 2].freeze,
                       "#{name}_per_sample?" => NUMBER)
        end
      end

      # Figures that are estimated in sampled mode.
      ESTIMATED = Figures.names(Figures::TOTALS, :sum, :derived).map(&:name).freeze
      TOTALS = {
        **Figures.names(Figures::TOTALS, :sum).to_h { |name| [name.name, COUNT] },
        **Figures.names(Figures::TOTALS, :derived).to_h { |name| [name.name, SIGNED] },
        **Figures.names(Figures::TOTALS, :exact).to_h { |name| ["#{name}?", COUNT] },
        "estimated?" => FLAG, **estimates(ESTIMATED)
      }.freeze
      # Figures of a call site in a live view.
      VITAL = %w[live_bytes growth live_blocks allocations].freeze
      VITAL_SITE = { "name" => PATH, **VITAL.to_h { |name| [name, SIGNED] }, "estimated?" => FLAG,
                     "old_bytes?" => SIGNED, **CallSite::OBJECT_FIGURES.to_h { |name| ["#{name}?", SIGNED] },
                     **estimates([*VITAL, "old_bytes", *CallSite::OBJECT_FIGURES.map(&:name)]) }.freeze
      # A mean may be missing or null, and so may figures that not every process has.
      SITE_FIGURES = Figures::SITE.to_h do |figure|
        kind = figure.unit == :mean_age ? NUMBER : SIGNED
        known = Figures::OF_BLOCKS.include?(figure.name) && kind == SIGNED
        [known ? figure.name.name : "#{figure.name}?", kind]
      end.freeze
      SITE_ERRORS = Figures::SITE.select(&:estimated?).map { |figure| figure.name.name }.freeze
      # Those of a sample have variances and the like.
      VARIANCE = Kind.new("a number up to 1e300", ->(value) { value.is_a?(Numeric) && value.abs <= 1e300 })
      OBJECTS = { **SiteRow::OBJECT_COLUMNS.to_h { |name| [name.name, SIGNED] },
                  **SiteRow::OBJECT_DOUBTS.to_h { |name| ["#{name}?", VARIANCE] } }.freeze
      NATIVE_CALLER = { "frames" => [PATH, 16].freeze, "location?" => PATH, "samples" => COUNT, "live_samples" => COUNT,
                        "share" => NUMBER, "live_share?" => NUMBER }.freeze
      NATIVE_CALLERS = { "samples" => COUNT, "live_samples" => COUNT,
                         "callers" => [NATIVE_CALLER, 64].freeze }.freeze
      private_constant :NATIVE_CALLER, :NATIVE_CALLERS
      SITE = { "kind" => one_of("ruby", "native", "pseudo"), "name" => PATH, "path?" => PATH, "lineno?" => SIGNED,
               **SITE_FIGURES, "estimated?" => FLAG, "objects?" => OBJECTS, "native_callers?" => NATIVE_CALLERS,
               **estimates(SITE_ERRORS) }.freeze
      PROCESS = { "pid" => PID, "program?" => PATH, "ruby?" => WORD, "platform?" => WORD, "memintro?" => WORD,
                  "mode?" => WORD, "problem?" => PATH, "tracking?" => FLAG, "preloaded?" => FLAG,
                  "generation?" => COUNT, "time?" => WORD, "sample_bytes?" => COUNT, "processes?" => COUNT,
                  "rss_bytes?" => COUNT }.freeze
      SITES = [SITE, 1 << 24].freeze
      FRAME = Kind.new("a path, a line and a label", lambda do |value|
        value.is_a?(Array) && value.size == 3 && [value[0], value[2] || ""].all?(String) && value[1].is_a?(Integer) &&
          value.grep(String).all? { |text| text.size <= LONGEST_PATH }
      end)
      STACK_CELL = lambda do |cell|
        case cell
        when Array then cell.size <= 64 && cell.all?(&VARIANCE.test)
        when String then cell.size <= LONGEST_PATH
        else cell.nil? || VARIANCE.test.call(cell)
        end
      end
      STACK = Kind.new("a row of #{SiteRow::STACK_FIGURES} figures", lambda do |value|
        value.is_a?(Array) && value.size == SiteRow::STACK_FIGURES && value.all?(&STACK_CELL)
      end)
      STACKS = { "frames?" => [FRAME, 1 << 24].freeze, "stacks?" => [STACK, 1 << 24].freeze }.freeze
      # What a table also needs.
      RENDERING = { "app_root?" => PATH, "left_out" => COUNT, "live_bytes" => SIGNED, "variance?" => NUMBER }.freeze
      SLOT = { "module?" => PATH, "symbol?" => NAME, "slot?" => COUNT, "value?" => COUNT, "state?" => WORD }.freeze
      REMARKS = [text(LONGEST_PATH), 1_000].freeze
      SLOTS = %w[patched foreign lost refused malformed].to_h { |state| ["#{state}?", COUNT] }.freeze
      DETAILS = Kind.new("an object", ->(value) { value.is_a?(Hash) })
      ACCOUNT_ROW = { "name" => WORD, "bytes" => COUNT, "shared_bytes?" => COUNT, "basis" => WORD,
                      "details?" => DETAILS }.freeze
      LEAK_GROUP = { "verdict" => WORD, "site?" => PATH, "size?" => COUNT, "count" => COUNT, "bytes" => COUNT,
                     "youngest?" => COUNT, "oldest?" => COUNT, "held_by?" => PATH, "held_bytes?" => COUNT,
                     "owner?" => PATH, "owners?" => COUNT, "also_held_by?" => PATH, "also_held_bytes?" => COUNT,
                     "first_words?" => [PATH, 16].freeze, "example?" => WORD }.freeze
      PART = Kind.new("a call site and its bytes", lambda do |value|
        value.is_a?(Array) && value.size == 2 && PATH.test.call(value[0]) && COUNT.test.call(value[1])
      end)
      OWNED = %w[objects blocks bytes silent_objects tracked_objects tracked_bytes garbage_objects garbage_bytes
                 silent_garbage_objects].freeze
      LEAK_OWNER = { "class_name" => PATH, "sites" => [PART, 100].freeze, "garbage_sites" => [PART, 100].freeze,
                     "library?" => PATH, **OWNED.to_h { |name| [name, COUNT] } }.freeze
      LEAK_FIGURES = %w[leaked_blocks leaked_bytes indirectly_leaked_blocks indirectly_leaked_bytes undecided_blocks
                        undecided_bytes scanned_blocks scanned_bytes copies searched_bytes].freeze
      HOLDER = { "class_name" => PATH, "name?" => PATH, "edge?" => PATH, "type" => WORD, "address" => WORD,
                 "at?" => PATH, "bytes?" => COUNT, "repeated?" => FLAG, "left_out?" => COUNT,
                 "alike?" => FLAG }.freeze
      HELD_PATH = { "objects" => COUNT, "bytes?" => COUNT, "holders" => [HOLDER, 1 << 20].freeze, "root" => PATH,
                    "root_edge?" => PATH, "shortened?" => FLAG, "left_out?" => COUNT }.freeze
      FINDING = { "sentence" => PATH, "certainty" => PATH, "advice" => PATH, "what" => PATH, "kind" => WORD,
                  "bytes_per_minute" => SIGNED, "bytes_per_minute_interval" => [SIGNED, 2].freeze,
                  "grown_bytes" => SIGNED, "since" => WORD, "found_at" => WORD, "slows_down" => FLAG,
                  "look_again_at" => WORD, "confirmed_at?" => WORD, "ended_at?" => WORD, "objects?" => COUNT,
                  "site?" => PATH, "called_from?" => PATH, "site_bytes?" => SIGNED,
                  "stack" => [PATH, 64].freeze, "held_by?" => PATH, "holders" => [PATH, 16].freeze, "verdict?" => WORD,
                  "also" => [PATH, 1_000].freeze, "notes" => REMARKS, "tracking" => PATH, "pid" => PID }.freeze
      HUNT = { "memintro_hunt" => COUNT, "pid" => PID, "hunting" => FLAG, "hunted" => FLAG, "state?" => WORD,
               "every?" => NUMBER, "looks?" => COUNT, "investigations?" => COUNT, "watched?" => COUNT,
               "cpu_seconds?" => NUMBER, "cpu_share?" => NUMBER, "pause_s?" => NUMBER, "errors?" => COUNT,
               "next_look_s?" => NUMBER, "suspects?" => [PATH, 1_000].freeze,
               "last_error?" => PATH, "findings" => [FINDING, 100].freeze }.freeze
      private_constant :DETAILS, :ACCOUNT_ROW, :LEAK_GROUP, :PART, :OWNED, :LEAK_OWNER, :LEAK_FIGURES, :HOLDER,
                       :HELD_PATH, :FINDING, :HUNT
      private_constant :ESTIMATED, :TOTALS, :VITAL, :VITAL_SITE, :SITE_FIGURES, :SITE_ERRORS, :OBJECTS,
                       :VARIANCE, :SITE, :PROCESS, :SITES, :FRAME, :STACK_CELL, :STACK, :STACKS, :RENDERING, :SLOT,
                       :REMARKS, :SLOTS

      # A command: what it answers, in words; the most bytes of that; whether it is small, and does not count among the
      # answers that are made at a time; and its fields, where the answer is one JSON object.
      Command = Struct.new(:about, :bytes, :fields) do
        # @return [Boolean]
        def brief? = bytes == BRIEF_BYTES
      end

      # All commands. {Commands} has a method for each; `rake protocol` writes the tables in docs/protocol.md.
      COMMANDS = {
        "info" => Command.new(
          "pid, ppid, name, program, versions, tracking, mode, RSS, known commands", BRIEF_BYTES,
          { "pid" => PID, "ppid?" => PARENT, "name?" => NAME, "program?" => NAME, "ruby?" => WORD,
            "memintro" => WORD, "tracking" => FLAG, "mode" => WORD, "preloaded?" => FLAG,
            "rss_bytes?" => COUNT, "since?" => WORD, "commands?" => [WORD, 100].freeze }
        ),
        "start" => Command.new(
          "`state`: started, restarted, switched or unchanged; mode", BRIEF_BYTES,
          { "state" => one_of("started", "restarted", "switched", "unchanged"), "mode" => WORD,
            "tracking" => FLAG, "changes?" => [WORD, 10].freeze }
        ),
        "stop" => Command.new(
          "`state`: stopped or unchanged; totals", BRIEF_BYTES,
          { "state" => one_of("stopped", "unchanged"), "totals" => TOTALS }
        ),
        "mark" => Command.new(
          "totals", BRIEF_BYTES,
          { "tracking" => FLAG, "totals" => TOTALS }
        ),
        "clear" => Command.new(
          "totals", BRIEF_BYTES,
          { "tracking" => FLAG, "totals" => TOTALS }
        ),
        # With `older_than_gcs`; otherwise the answer is a report.
        "top" => Command.new(
          "call sites, text or JSON", MOST_BYTES,
          { "version?" => COUNT, "process" => PROCESS, "totals?" => TOTALS, "call_sites" => SITES,
            "rendering?" => RENDERING, **STACKS }
        ),
        "report" => Command.new(
          "a report, text or JSON", MOST_BYTES,
          { "version" => COUNT, "process" => PROCESS, "totals" => TOTALS, "call_sites" => SITES,
            "rendering?" => RENDERING, **STACKS }
        ),
        # It has a shape of its own, which files have, too.
        "snapshot" => Command.new(
          "what `Memintro.snapshot` saves", MOST_BYTES,
          nil
        ),
        "doctor" => Command.new(
          "`Memintro.doctor`", 4 << 20,
          { "memintro" => WORD, "ruby?" => WORD, "platform?" => WORD, "origin?" => WORD, "mode?" => WORD,
            "hook?" => PATH, "allocator?" => PATH, "modules?" => COUNT, "slots?" => SLOTS,
            "left_alone?" => [SLOT, 100_000].freeze, "problems" => REMARKS, "notes?" => REMARKS,
            "escapes?" => REMARKS }
        ),
        "gc" => Command.new(
          "time, live objects and RSS before and after `GC.start`", BRIEF_BYTES,
          { "took_ms" => NUMBER, "live_objects_before" => COUNT, "live_objects" => COUNT,
            "rss_bytes_before?" => COUNT, "rss_bytes?" => COUNT }
        ),
        "vitals" => Command.new(
          "RSS, live objects, GC, totals and the first call sites", 4 << 20,
          { "pid" => PID, "name?" => NAME, "program?" => NAME, "time" => NUMBER, "rss_bytes?" => COUNT,
            "fragmentation_bytes?" => COUNT, "live_objects" => COUNT,
            "gc" => { "count" => COUNT, "minor" => COUNT, "major" => COUNT, "time_ms" => NUMBER },
            "tracking" => FLAG, "mode" => WORD, "totals" => TOTALS, "sites" => [VITAL_SITE, 1_000].freeze }
        ),
        "account" => Command.new(
          "[where the resident memory is](account.md)", 4 << 20,
          { "memintro_account" => COUNT, "pid" => PID, "rss" => COUNT, "allocator" => WORD,
            "pause_ms" => NUMBER, "verdict" => REMARKS, "notes" => REMARKS,
            "rows" => [ACCOUNT_ROW, 100].freeze }
        ),
        "leaks" => Command.new(
          "[blocks that nothing points to](leaks.md), and owners of others", 16 << 20,
          { "memintro_leaks" => COUNT, "pid" => PID, **LEAK_FIGURES.to_h { |name| [name, COUNT] },
            "free_bytes?" => COUNT, "allocator" => WORD, "basis" => WORD, "mode" => WORD,
            "search_ms" => NUMBER, "pause_ms" => NUMBER, "verdict" => REMARKS, "notes" => REMARKS,
            "garbage_collected?" => FLAG, "owners?" => [LEAK_OWNER, 100].freeze,
            "groups" => [LEAK_GROUP, 10_000].freeze }
        ),
        "trim" => Command.new(
          "RSS before and after giving free memory back", BRIEF_BYTES,
          { "rss_before" => COUNT, "rss" => COUNT, "given_back_bytes" => SIGNED }
        ),
        "heap_dump" => Command.new(
          "writes a [dump](heap_dump.md); with `progress`, lines with `objects` before", 4 << 20,
          { "pid" => PID, "path" => PATH, "objects" => COUNT, "bytes" => COUNT,
            "uncompressed_bytes" => COUNT, "compression" => WORD, "redacted" => FLAG, "pause_ms" => NUMBER,
            "unread_types" => COUNT, "took_s" => NUMBER }
        ),
        "holders" => Command.new(
          "[what holds](holders.md) objects of a class, line or age", 64 << 20,
          { "pid" => PID, "sentence" => PATH, "objects" => COUNT, "bytes" => COUNT, "unreachable" => COUNT,
            "unreachable_bytes?" => COUNT, "by?" => WORD, "groups" => [HELD_PATH, 1_000].freeze,
            "more_groups" => COUNT, "other_ways?" => [HELD_PATH, 10].freeze, "more_other_ways?" => COUNT,
            "notes" => REMARKS,
            "pause_ms?" => NUMBER, "text?" => text(32 << 20) }
        ),
        "hunt" => Command.new(
          "the [hunt](hunt.md) and its findings; `hunted`: whether it hunted before", 4 << 20,
          HUNT
        )
      }.each_value(&:freeze).freeze
      # Fields of answers that are one JSON object, by command.
      ANSWERS = COMMANDS.transform_values(&:fields).compact.freeze

      # @param command [String]
      # @return [Integer] most bytes of its answer
      def self.most_bytes(command)
        COMMANDS[command]&.bytes || MOST_BYTES
      end

      # @param value [Object] what a JSON parser read
      # @param kind [Hash, Array, Kind]
      # @param name [String] what to call it in errors
      # @return [Object] a copy with the fields that the kind has
      # @raise [Invalid] naming the first field that is something else
      def self.check(value, kind, name = "the answer")
        case kind
        when Hash then object(value, kind, name)
        when Array then list(value, kind, name)
        else
          return value if kind.test.call(value)

          raise Invalid, "#{name} is #{shown(value)}; it must be #{kind.words}"
        end
      end

      # @param text [String] a document
      # @return [nil]
      # @raise [Invalid] if what a parser makes of it would take too much memory
      def self.check_size(text)
        return if text.count(",[{") <= MOST_VALUES

        raise Invalid, "the answer has more than #{MOST_VALUES} values; fewer rows may be asked for (--top N)"
      end

      def self.object(value, kinds, name)
        raise Invalid, "#{name} is #{shown(value)}; it must be an object" unless value.is_a?(Hash)

        kinds.each_with_object({}) do |(key, kind), found|
          field = key.delete_suffix("?")
          item = value[field]
          if item.nil?
            raise Invalid, "#{path(name, field)} is missing" unless key.end_with?("?")

            found[field] = nil if value.key?(field)
          else
            found[field] = check(item, kind, path(name, field))
          end
        end
      end
      private_class_method :object

      def self.list(value, kind, name)
        item, most = kind
        unless value.is_a?(Array) && value.size <= most
          raise Invalid, "#{name} is #{shown(value)}; it must be a list of at most #{most}"
        end

        value.each_with_index.map { |one, index| check(one, item, "#{name}[#{index}]") }
      end
      private_class_method :list

      # Shows only the beginning, because it may be as long as an answer.
      def self.shown(value)
        case value
        when Hash then "an object"
        when Array then "a list of #{value.size}"
        when String then Arguments.shown(value[0, 100])
        else Arguments.shown(value)
        end
      end
      private_class_method :shown

      def self.path(name, field)
        name == "the answer" ? field : "#{name}.#{field}"
      end
      private_class_method :path
    end
  end
end
