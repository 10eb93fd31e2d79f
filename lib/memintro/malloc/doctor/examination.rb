# frozen_string_literal: true

require_relative "../../support/units"
require_relative "../../support/allocators"
require_relative "../../support/settings"

module Memintro
  class Doctor
    # Gathers the findings. Each part answers one question, and is left out if it fails, so that the others are still
    # shown.
    class Examination
      # States of a slot, see Memintro::Native.patches.
      STATES = %i[patched foreign lost malformed refused].freeze
      # Other libraries that answer malloc themselves.
      OTHERS = %i[hoard snmalloc mwrap heaptrack].freeze
      ALLOCATORS = Regexp.union([*Allocators::ALL.keys, *OTHERS].map(&:to_s)).freeze
      # What does not work without certain functions, by Memintro::Native.missing_functions.
      WITHOUT = {
        lines: "call sites are native callers, because lines of Ruby cannot be read",
        heap: "the heap cannot be read, so iseqs, each_iseq, top_iseqs, internals, histogram and occupancy raise " \
              "UnknownRubyError",
        classes: "the classes of objects are unknown, so histogram and occupancy raise UnknownRubyError",
        iseqs: "instruction sequences are shown without the path, the label or the line that it would tell",
        iseq_kind: "instruction sequences cannot be told from other objects, so iseqs, each_iseq and top_iseqs raise " \
                   "UnknownRubyError",
        measurements: "measure and compare have no figures of objects and of the collector",
        turns: "other threads wait while memintro sorts figures of the heap or reads /proc",
        forks: "a process that listens does not notice the children that C code forks",
        objects: "start(objects: true) raises UnsupportedError, because Ruby does not tell of its objects",
        samples: "start(objects: :sampled) raises UnsupportedError, because Ruby does not tell what it has marked",
        dumps: "heap_dump and holders raise UnknownRubyError, because Ruby does not tell what its objects refer to"
      }.freeze
      private_constant :OTHERS, :ALLOCATORS, :WITHOUT

      def initialize
        @problems = []
        @notes = []
      end

      # @return [Hash{Symbol => Object}]
      def findings
        origin = load_hook
        patches = origin == :none ? [] : patches_now
        examine_environment
        examine_figures unless origin == :none
        examine_slots(patches)
        examine_ruby
        { memintro: VERSION, ruby: RUBY_VERSION, platform: RUBY_PLATFORM, origin: origin, mode: mode(origin),
          hook: hook_path, allocator: allocator(origin), modules: patches.map(&:first).uniq.size,
          slots: count(patches), left_alone: left_alone(patches), problems: @problems, notes: @notes,
          escapes: escapes(origin) }
      end

      private

      def load_hook
        Native.load_hook
      rescue Error => e
        @problems << e.message
        :none
      end

      def mode(origin)
        origin == :none ? :off : Native.mode
      end

      def hook_path
        Native.hook_path
      rescue Error
        nil
      end

      def allocator(origin)
        path = Native.allocator unless origin == :none
        @problems << AllocatorError::DEFAULT_MESSAGE if path.nil? && origin != :none
        path
      end

      def patches_now
        Native.refresh
        Native.patches
      end

      def count(patches)
        found = patches.map(&:last).tally
        STATES.to_h { |state| [state, found.fetch(state, 0)] }
      end

      def left_alone(patches)
        patches.reject { |patch| patch.last == :patched }
               .map { |patch| %i[module symbol slot value state].zip(patch).to_h.freeze }
      end

      def examine_environment
        @problems << "#{Brake.cause}: nothing is tracked here; unset it and start the program again" if Brake.on?
        first = preloads.first
        if preloads.any? { |path| ours?(path) } && !ours?(first) && first.match?(ALLOCATORS)
          @problems << "LD_PRELOAD names #{first} before memintro's hook, and it answers malloc first: put the hook " \
                       "first, as `memintro run` does"
        elsif (unseen = Native.unseen)
          @problems << unseen
        end
        Memintro.configuration
      rescue ArgumentError => e
        @problems << e.message
      end

      def examine_ruby
        unless Native.known_rubies.include?(RUBY_VERSION[/\A\d+\.\d+/])
          @problems << "memintro does not know how objects of Ruby #{RUBY_VERSION} lie in memory, so heap_dump and " \
                       "holders raise UnknownRubyError; it knows Ruby #{Native.known_rubies.join(', ')}"
        end
        Native.missing_functions.each do |what, names|
          @problems << "Ruby #{RUBY_VERSION} has no function #{names.join(', ')}, so #{WITHOUT.fetch(what)}; a newer " \
                       "version of memintro may support this Ruby"
        end
      end

      def preloads
        ENV["LD_PRELOAD"].to_s.split(/[\s:]+/).reject(&:empty?)
      end

      def ours?(path)
        File.basename(path.to_s) == Paths::HOOK
      end

      def examine_figures
        @notes.concat(Memintro.totals.caveats)
      end

      def examine_slots(patches)
        lost, refused, malformed = patches.map(&:last).tally.values_at(:lost, :refused, :malformed)
        if lost
          @notes << "#{Units.counted(lost, 'patched slot')} #{Units.noun(lost, 'was', 'were')} overwritten by " \
                    "other code; what is called through #{Units.noun(lost, 'it', 'them')} is not seen"
        end
        if refused
          @notes << "#{Units.counted(refused, 'slot')} #{Units.noun(refused, 'lies', 'lie')} in pages the kernel " \
                    "would not make writable"
        end
        return unless malformed

        @notes << "#{Units.counted(malformed, 'module')} could not be read and " \
                  "#{Units.noun(malformed, 'was', 'were')} skipped"
      end

      def escapes(origin)
        list = ["what the loader allocates for itself (ld.so has its own malloc)",
                "memory taken with mmap, without malloc: thread stacks, arenas of libraries, the heap's own pages",
                embedded]
        return list unless origin == :loaded

        list + ["blocks allocated before the start; their frees are not counted either",
                "calls through function pointers that were copied before the start: a free missed that way is " \
                "noticed when the address is handed out again (missed_frees)"]
      end

      def embedded
        fitting = RUBY_VERSION >= "3.2" ? "up to 640 bytes" : "strings up to 23 bytes, arrays up to 3 items"
        "Ruby objects that fit their slot (#{fitting}): they never call malloc"
      end
    end
  end
end
