# frozen_string_literal: true

require_relative "../support/advice"
require_relative "../support/json_text"
require_relative "../support/list"
require_relative "../support/names"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # A finding of {Memintro.hunt}: what grows, how fast, since when, which line makes it, and what holds it. Frozen.
  #
  # @example
  #   Memintro.findings.last.sentence
  #   # => "Search::Result grows by ~1.0 MiB a minute since 12:03:10, made at app/search.rb:10, held by Search::CACHE"
  class Finding
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[sentence certainty advice what kind bytes_per_minute bytes_per_minute_interval grown_bytes since
                    found_at slows_down look_again_at confirmed_at ended_at objects site called_from site_bytes stack
                    held_by holders verdict also notes tracking pid].freeze
    # Figures that are computed from the others.
    MADE = %i[sentence certainty advice].freeze
    # Version of the JSON.
    LAYOUT = 1
    # Values of {#kind}, with the words for each in sentences. The others are rows of an {Account}.
    KINDS = { ruby_objects: "Ruby objects", internal_objects: "internal objects of Ruby's VM",
              iseqs: "compiled Ruby code", malloc_native: "memory of C code",
              malloc_owned: "memory of C code, whose size Ruby does not know",
              fiber_stacks: "stacks of fibers", thread_stacks: "stacks of threads",
              malloc_free: "free memory that malloc keeps", call_site: "memory of a call site",
              outside: "memory outside of Ruby's heap" }.freeze
    # Whose stacks grow.
    STACKS = { fiber_stacks: "fiber", thread_stacks: "thread" }.freeze
    # What to do about each kind.
    ADVICE = {
      ruby_objects: "Look at what holds them: give it a bound, or remove from it what is done with. If it is a " \
                    "cache, look at its bound.",
      internal_objects: "Ruby makes them for the code of that line, and no ObjectSpace.each_object shows them. Look " \
                        "at what is evaluated, defined or compiled there again and again.",
      fiber_stacks: "A fiber keeps its stack until it has ended, or is collected. An Enumerator has one from its " \
                    "first next on: let go of it, or take what is needed with first or lazy.",
      thread_stacks: "Each thread has a stack until it ends: use fewer, or end them.",
      iseqs: "Look at what is evaluated there: compile each text once, and pass on what differs as arguments.",
      malloc_native: "Look at that line: what it has allocated must be freed by the same library. %<leaks>s says " \
                     "what holds the blocks.",
      malloc_owned: "Look at what holds these objects: share them, close them, or let go of them. Ruby does not " \
                    "count this memory, so it also collects too late what nothing holds.",
      malloc_free: "It is fragmentation, no leak of a line: %<trim>s gives back what can be; %<account>s says how " \
                   "much. MALLOC_ARENA_MAX=2 or jemalloc may help.",
      call_site: "Look at that line; %<account>s says whose the memory is."
    }.freeze
    # Names of internal objects that Ruby makes for calls.
    # @api private
    CALLS = /\Aimemo_call(?:info|cache)\z/
    CALLS_ADVICE = "Before Ruby 3.4, each call with keywords in code that is evaluated leaves a call info and a call " \
                   "cache, which the class of the called method keeps for ever: compile the text once and call what " \
                   "it defines, or evaluate it without keywords."
    # For all others.
    OTHER_ADVICE = "%<account>s says what it is made of."
    # The commands that {ADVICE} names.
    CALLS_FOR = %i[account leaks trim].freeze
    private_constant :MADE, :ADVICE, :OTHER_ADVICE, :CALLS_FOR, :STACKS, :CALLS_ADVICE

    # @return [String] what grows: a class, the file of compiled code, or words for a kind of memory
    attr_reader :what
    # @return [Symbol] one of {KINDS}, or a row of an {Account} such as `:anonymous`
    attr_reader :kind
    # @return [Integer] bytes a minute, estimated from the readings before the investigation
    attr_reader :bytes_per_minute
    # @return [Array(Integer, Integer)] the 99.9% interval of {#bytes_per_minute}, by Student's t over the
    #   steps from reading to reading. Its lower end is above 0
    attr_reader :bytes_per_minute_interval
    # @return [Integer] bytes since {#since}
    attr_reader :grown_bytes
    # @return [Time] the first reading of the growth; it may have begun before
    attr_reader :since
    # @return [Time]
    attr_reader :found_at
    # @return [Boolean] whether the growth slowed down with the work. Then it is logged and given to `on_finding` only
    #   when it is confirmed
    attr_reader :slows_down
    # @return [Time] when it is likely to be confirmed, if it is a leak
    attr_reader :look_again_at
    # @return [Time, nil] when it had grown by the same amount again, at half of its pace or more
    attr_reader :confirmed_at
    # @return [Time, nil] when a look found that the growth had ended; nil: no look has
    attr_reader :ended_at
    # @return [Integer, nil] of stacks: how many fibers or threads there were when it was found
    attr_reader :objects
    # @return [String, nil] the line that made it, `path:line`; nil where none is known
    attr_reader :site
    # @return [String, nil] the line of a file that led there, if {#site} is in no file, as in evaluated text
    attr_reader :called_from
    # @return [Integer, nil] live bytes that this line allocated while it was tracked
    attr_reader :site_bytes
    # @return [Array<String>] the lines that led there, the innermost first
    attr_reader :stack
    # @return [String, nil] the way that holds most of it, from the nearest holder to a root
    attr_reader :held_by
    # @return [Array<String>] up to three such ways, each with how many objects it holds
    attr_reader :holders
    # @return [String, nil] of blocks of C code: `leaked` if nothing points to most of them, else `anchored`
    attr_reader :verdict
    # @return [Array<String>] other figures that grew at the same time and that this finding explains
    attr_reader :also
    # @return [Array<String>] what is unknown, and why
    attr_reader :notes
    # @return [String] what was tracked to find the line
    attr_reader :tracking
    # @return [Integer] of the process
    attr_reader :pid

    # @api private
    def initialize(**figures)
      (ATTRIBUTES - MADE).each { |name| instance_variable_set(:"@#{name}", figures[name]) }
      %i[stack holders also notes].each { |name| instance_variable_set(:"@#{name}", figures.fetch(name, []).freeze) }
      freeze
    end

    # @return [String] the finding in one line
    def sentence
      Names.printable("#{what}#{with_text} grows by ~#{Units.bytes(bytes_per_minute)} a minute (#{interval_text}) " \
                      "since #{clock(since)}#{made_text}#{held_text}: #{kind_text}")
    end

    # @return [String] whether this may still be a cache that fills up, and when that will be known
    def certainty
      text = "It was confirmed at #{clock(confirmed_at)}: it had grown as much again." if confirmed_at
      text ||= "Not confirmed#{so_far}"
      ended_at ? "#{text} It has ended at #{clock(ended_at)}." : text
    end

    # @return [String] what to do next
    def advice
      return CALLS_ADVICE if kind == :internal_objects && what.match?(CALLS)

      names = CALLS_FOR.to_h { |name| [name, Advice.pick("Memintro.#{name}", "`memintro #{name} #{pid || 'PID'}`")] }
      format(ADVICE.fetch(kind, OTHER_ADVICE), names)
    end

    # @return [Hash{Symbol => Object}] every attribute, in a fixed order; times as text in UTC
    def to_h
      super.transform_values { |value| value.is_a?(Time) ? value.getutc.strftime("%FT%T.%3NZ") : value }
    end

    # @return [String] {#to_h} as JSON
    def to_json(*)
      JsonText.line(to_h)
    end

    # @api private
    # @return [Array] the key that it shares only with findings that {#with} makes of it
    def identity = [pid, found_at, what]

    # @api private
    # @param changes [Hash{Symbol => Object}] by attribute
    # @return [Finding]
    def with(**changes)
      self.class.new(**(ATTRIBUTES - MADE).to_h { |name| [name, public_send(name)] }, **changes)
    end

    # @return [String] the sentence, the certainty, the advice and the details
    def to_s
      lines = ["#{sentence}.", certainty, advice]
      lines << "stack: #{stack.join(' ← ')}" if stack.size > 1
      lines.concat(holders.map { |way| "held: #{way}" })
      lines << "with it: #{also.join(', ')}" unless also.empty?
      lines.concat(notes.map { |note| "note: #{note}" })
      lines.map { |line| Names.printable(line) }.join("\n")
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{sentence}>"
    end

    private

    def clock(time) = time.strftime("%F %T")

    def so_far
      return "." if ended_at

      course = "it has grown for #{Units.duration(found_at - since)} and has " \
               "#{slows_down ? 'slowed down as the work has' : 'not slowed down'}"
      like = slows_down ? "A start and a cache that fills up do the same" : "A cache that fills up does the same"
      " yet: #{course}. #{like}: look again at #{clock(look_again_at)}."
    end

    def interval_text
      low, high = bytes_per_minute_interval
      "#{Units.bytes(low)} to #{Units.bytes(high)}"
    end

    # For objects of the VM: the same code makes several kinds.
    def with_text
      others = kind == :internal_objects ? also.grep(/\Aimemo_/) : []
      ", with #{others.join(', ')}," if others.any?
    end

    def made_text
      ", made at #{site}#{" (called from #{called_from})" if called_from}" if site
    end

    def held_text
      return ", which nothing points to any more" if verdict == "leaked"

      ", held by #{held_by}" if held_by
    end

    def kind_text
      return "stacks of #{Units.counted(objects, STACKS.fetch(kind))}" if objects

      KINDS.fetch(kind) { "#{kind} in an account" }
    end
  end
end
