# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/brake"

module Memintro
  # Methods of {Memintro} that find growing memory automatically. {Memintro} is extended with them. See docs/hunt.md.
  module Hunting
    # Watches this process and investigates growth: of a class, instruction sequences, memory of C code, free memory
    # that malloc keeps. A thread of memintro's own looks at regular intervals, for at most 0.2% of a core. When a
    # figure rises significantly, it collects garbage, tracks allocations for some minutes to find the line, searches
    # for the holders, writes one {Finding}, and continues to watch. It also runs in each forked child, and after
    # Process.daemon.
    #
    # A process has one hunt. Called again with the same arguments, this returns it; with others, it replaces it.
    #
    # @param every [Numeric] seconds from one look to the next, from 1 to 86,400
    # @param logger [#info, #write, nil] gets a line for each finding; nil: as for {Memintro.log_every}
    # @param on_finding [#call, nil] is given each {Finding}, in a thread of its own. What it raises is logged
    # @param clock [Object] for tests: a faster clock
    # @return [Hunt] under `MEMINTRO_DISABLE` one that does nothing
    # @raise [ArgumentError, TypeError] on wrong arguments
    # @raise [RactorError] in a Ractor that is not the main one
    # @raise [Error] if the system gives no thread
    # @example
    #   Memintro.hunt(on_finding: ->(finding) { Notifier.call(finding.sentence, finding.to_h) })
    def hunt(every: 60, logger: nil, on_finding: nil, clock: nil)
      MainRactor.only unless Brake.on?
      untracked do
        Loader.need(:Hunt, *Loader::QUESTIONS)
        Hunt.launch(every: every, logger: logger, on_finding: on_finding, clock: clock)
      end
    end

    # Ends the hunt of this process, and the tracking that it has started.
    # @return [Boolean] whether there was one
    def stop_hunting
      MainRactor.only
      hunted? ? untracked { Hunt.stop } : false
    end

    # @return [Boolean] whether this process hunts
    def hunting?
      MainRactor.only
      hunted? && (Hunt.current&.running? || false)
    end

    # @return [List<Finding>] the last 20 of this process and its parents, oldest first
    # @example
    #   Memintro.findings.last&.site   # => "app/search.rb:10"
    def findings
      MainRactor.only
      Loader.need(:List)
      untracked { List.new(hunted? ? Hunt.kept : []) }
    end

    # For `MEMINTRO_HUNT`: an error must not affect the program.
    # @api private
    def hunt_if_asked
      Loader.need(:Settings)
      seconds = Settings.hunt
      hunt(every: seconds) if seconds
    rescue StandardError, ScriptError => e
      begin
        STDERR.write("memintro: process #{Native.pid} does not hunt: #{e.message}\n")
      rescue StandardError
        nil # without standard error there is no reader
      end
    end

    private

    # @return [Boolean] whether a hunt has ever begun
    def hunted?
      Loader.loaded?(:Hunt)
    end
  end
end
