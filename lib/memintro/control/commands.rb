# frozen_string_literal: true

require_relative "../support/advice"
require_relative "../support/json_text"
require_relative "../process/cgroup_files"
require_relative "../report/report"
require_relative "../malloc/tracking"
require_relative "../snapshot/snapshot"
require_relative "../support/files"
require_relative "../support/process_facts"
require_relative "protocol"

module Memintro
  module Control
    # The commands of the control socket. The extension makes large answers as JSON, without Ruby objects; the client
    # makes tables of them.
    #
    # All code but that of an account, of a search for leaks and of a hunt is loaded with this file, so that a request
    # does not make the process grow; most processes are never asked for these. Nothing is evaluated: a
    # command is one of {NAMES}, its arguments are the keywords of the method of that name, and they are checked like
    # those of the public API.
    class Commands
      # Every command.
      NAMES = Protocol.commands.keys.freeze
      # Those whose answer is small.
      BRIEF = Protocol.commands.select { |_, command| command.is_brief }.keys.freeze

      # @param name [String] one of {NAMES}
      # @return [Array<Symbol>] its arguments
      def self.arguments(name)
        name == "start" ? Defaults::START : instance_method(name).parameters.map(&:last)
      end

      # @param server [Server]
      # @param answer [Answer]
      def initialize(server, answer)
        @server = server
        @answer = answer
      end

      # @param request [Hash] command and arguments
      # @return [nil]
      # @raise [ControlError] if there is no such command, or it takes no such argument
      def run(request)
        name = request.fetch("command")
        arguments = request.fetch("arguments")
        unless NAMES.include?(name)
          raise ControlError, "process #{Native.pid} (memintro #{VERSION}) has no command #{Arguments.shown(name)}; " \
                              "it has #{NAMES.join(', ')}"
        end

        check_keywords(name, arguments)
        @answer.colour = Arguments.flag(:colour, arguments.delete(:colour) { false })
        value = Advice.naming_commands { send(name, **arguments) }
        give(name, value) unless value.nil?
      end

      private

      def check_keywords(name, arguments)
        known = Commands.arguments(name) + [:colour]
        unknown = arguments.keys - known
        return if unknown.empty?

        raise ControlError, "#{name} takes no #{unknown.first}; it takes #{known.join(', ')}"
      end

      def give(name, value)
        @answer.format = :json
        @answer.write(Native.write_answer(name, value))
        nil
      end

      # What `memintro ps` shows.
      def info
        { pid: Native.pid, ppid: Process.ppid, name: @server.name, program: Protocol.program, ruby: RUBY_VERSION,
          memintro: VERSION, tracking: Memintro.tracking?, mode: Memintro.mode, preloaded: Memintro.preloaded?,
          rss_bytes: rss_bytes, since: @server.since.utc.strftime("%FT%TZ"), commands: NAMES }
      end

      def start(**settings)
        tracking = Memintro.tracking?
        epoch = Memintro.epoch
        before = [Memintro.mode, Native.sample_bytes]
        changeable = Memintro.send(:changeable)
        # The allocations of this thread after the start belong to the answer, not to the program. Its section has begun
        # already, unless there was no hook then. A second untracked section would leak to the next Ruby thread that
        # runs on this native thread.
        Native.load_hook
        Native.untracked_leave if Native.untracked_enter > 1
        Memintro.start(**settings)
        state = state_after(tracking, before, anew: Memintro.epoch != epoch)
        changes = tracking ? changes_since(changeable, settings) : []
        { state: state, mode: Memintro.mode, tracking: Memintro.tracking?, changes: changes }
      end

      # Changed settings, although the figures stay: a word and a value each.
      def changes_since(before, settings)
        now = Memintro.send(:changeable)
        changed = now.reject { |name, value| before[name] == value }.transform_values { |value| value ? "on" : "off" }
        changed[:objects] = "others" if before[:objects] && changed[:objects] == "on"
        changed[:stop_after] = "on" if settings[:stop_after]
        changed.map { |name, value| "#{name}_#{value}" }
      end

      # Another mode keeps what was collected, and is not a new start.
      def state_after(tracking, before, anew:)
        return tracking ? "restarted" : "started" if anew

        before == [Memintro.mode, Native.sample_bytes] ? "unchanged" : "switched"
      end

      def stop
        tracking = Memintro.tracking?
        totals = Memintro.stop
        { state: tracking ? "stopped" : "unchanged", totals: totals }
      end

      def mark
        Memintro.mark
        { tracking: Memintro.tracking?, totals: Memintro.totals }
      end

      def clear
        Memintro.clear
        { tracking: Memintro.tracking?, totals: Memintro.totals }
      end

      # Returns the top call sites; with `older_than_gcs`, only those with blocks that outlived this many collections.
      # With `rendering`, also what a table of the JSON needs.
      def top(n: Report::DEFAULT_TOP, by: nil, older_than_gcs: nil, format: "text", app_root: nil, rendering: false)
        return report(format: format, top: n, by: by, app_root: app_root, rendering: rendering) if older_than_gcs.nil?

        Arguments.count(:n, n, optional: true)
        Arguments.count(:older_than_gcs, older_than_gcs, most: CallSite::MOST_AGE)
        answer(Arguments.choice(:format, format, %i[text json]), n, by, app_root, rendering, older_than_gcs)
      end

      # Returns a report in one of its formats; with `rendering`, JSON with what the command writes the others from, and
      # with `stacks` whole stacks, too.
      def report(format: "text", top: Report.default_top(format), by: nil, app_root: nil, rendering: false, stacks: nil)
        Arguments.count(:top, top, optional: true)
        format = Arguments.choice(:format, format, Report::FORMATS)
        whole = Arguments.flag(:stacks, stacks.nil? ? !rendering : stacks)
        answer(format, top, by, app_root, rendering, nil, whole: whole)
      end

      # The extension makes and sends it: no Ruby object is made for a row.
      def answer(format, top, by, app_root, rendering, older_than_gcs, whole: false)
        by = Arguments.choice(:by, by.nil? ? Memintro.default_figure : by, CallSite::FIGURES)
        root = Arguments.text(:app_root, app_root, optional: true) || Memintro.configuration.app_root
        rendering = Arguments.flag(:rendering, rendering)
        taken = Native::Report.take(ProcessFacts.now, by, top, older_than_gcs, whole)
        if format == :json
          return @answer.send_text(taken.json(rendering ? { rendering: for_tables(taken, root) } : {}))
        end

        Report.write(taken, @answer, format: format, top: top, by: by, app_root: root)
      ensure
        taken&.clear
      end
      private :answer

      # The folder to which paths are relative, and the sum of the sites that are left out.
      def for_tables(taken, root)
        left_out, live_bytes, variance = taken.left_out
        { app_root: root || Files.current_folder, left_out: left_out, live_bytes: live_bytes, variance: variance }
      end

      # Returns the snapshot that {Memintro.snapshot} saves. With `settle`, for comparisons, garbage is collected first.
      def snapshot(parts: [], settle: false)
        allowed = [:all, *Snapshot::Parts::ALL]
        parts = Arguments.array(:parts, parts).map { |part| Arguments.choice(:parts, part, allowed) }
        @answer.send_text(Snapshot::Parts.json(Snapshot::Parts.check(parts), strict: !parts.include?(:all),
                                                                             settles: Arguments.flag(:settle, settle)))
      end

      def doctor(format: "text")
        format = Arguments.choice(:format, format, %i[text json])
        findings = Memintro.doctor
        return findings if format == :json

        @answer.write("#{findings}\n")
        nil
      end

      # A full collection, as `GC.start`.
      def gc
        before = [live_objects, rss_bytes]
        begun = Connection.now
        GC.start
        took = ((Connection.now - begun) * 1_000).round(1)
        { took_ms: took, live_objects_before: before[0], live_objects: live_objects,
          rss_bytes_before: before[1], rss_bytes: rss_bytes }
      end

      # Returns the figures that a live view draws several times a second. With `fragmentation`, a copy of the process
      # counts the memory that malloc has free.
      def vitals(top: 10, by: nil, fragmentation: false)
        Arguments.count(:top, top, optional: true)
        by = Arguments.choice(:by, by.nil? ? Memintro.default_figure : by, CallSite::FIGURES)
        sites = Memintro.tracking? || Memintro.totals.allocations.positive? ? Memintro.top(top, by: by) : []
        { pid: Native.pid, name: @server.name, program: Protocol.program, time: Time.now.to_f.round(3),
          rss_bytes: rss_bytes, live_objects: live_objects,
          fragmentation_bytes: (free_bytes if Arguments.flag(:fragmentation, fragmentation)),
          gc: { count: GC.count, minor: GC.stat(:minor_gc_count), major: GC.stat(:major_gc_count),
                time_ms: GC.stat(:time) },
          tracking: Memintro.tracking?, mode: Memintro.mode, totals: Memintro.totals,
          sites: sites.map { |site| vital_site(site) } }
      end

      # Long names are cut at the beginning, because the end says more.
      def vital_site(site)
        name = Names.utf8(site.name)
        name = "...#{name[-997..]}" if name.size > 1_000
        figures = site.to_h.merge(name: name)
        return figures unless (old = site.old)

        figures[:old_bytes] = old.live_bytes
        figures[:old_bytes_standard_error] = old.live_bytes_standard_error if old.estimated?
        figures
      end

      # Resident memory by its uses: {Memintro.account}.
      def account(ruby: true)
        Loader.need(:Account)
        { memintro_account: Account::LAYOUT, pid: Native.pid, **Memintro.account(ruby: ruby).to_h }
      end

      # Blocks that nothing points to: {Memintro.leaks}.
      def leaks(gc: true, confirm: true, first_words: false, seconds: 60)
        found = Memintro.leaks(gc: gc, confirm: confirm, first_words: first_words, seconds: seconds)
        { memintro_leaks: Leaks::LAYOUT, pid: Native.pid, **found.to_h }
      end

      # Starts or stops {Memintro.hunt}, and shows how it goes and what it has found. A hunt that runs stays as it is.
      def hunt(action: "show", every: 60)
        action = Arguments.choice(:action, action, %i[show start stop])
        ran = Memintro.hunting?
        Memintro.hunt(every: every) if action == :start && !ran
        Memintro.stop_hunting if action == :stop
        figures = ran || action == :start ? Hunt.current.to_h : { findings: Memintro.findings.map(&:to_h) }
        { memintro_hunt: Finding::LAYOUT, pid: Native.pid, hunting: Memintro.hunting?, hunted: ran, **figures }
      end

      # Gives free memory back to the kernel: {Memintro.trim}.
      def trim(compact: false)
        Memintro.trim(compact: compact)
      end

      def free_bytes
        Loader.need(:Fragmentation)
        Fragmentation.bytes
      end

      # Writes a dump of the heap into a file of this process: {Memintro.heap_dump}. With `progress`, a line comes for
      # each look before the answer. Other clients are served between two looks.
      def heap_dump(path:, compress: "auto", redact: nil, seconds: 600, progress: false)
        path = Arguments.text(:path, path)
        unless path.start_with?("/")
          raise ArgumentError, "path is #{Arguments.shown(path)}; it must begin with /, because this process may be " \
                               "in another folder than you"
        end

        shows = Arguments.flag(:progress, progress)
        @answer.format = :json
        begun = Connection.now
        done = Memintro.heap_dump(path, compress: compress, redact: redact, seconds: seconds) do |objects|
          @answer.send_now(JsonText.line(objects: objects) << "\n") if shows
        end
        { pid: Native.pid, took_s: (Connection.now - begun).round(3), **done }
      end

      # By which ways objects are held: {Memintro.holders}, with a class by its name. With `progress`, as with
      # `heap_dump`; with `rendering`, also the text for people.
      def holders(class: nil, site: nil, older_than_gcs: nil, top: 10, by: :bytes, seconds: 600, progress: false,
                  rendering: false)
        name = Arguments.text(:class, binding.local_variable_get(:class), optional: true)
        shows = Arguments.flag(:progress, progress)
        @answer.format = :json
        how = { site: site, older_than_gcs: older_than_gcs, top: top, by: by, seconds: seconds }
        found = Memintro.holders(name, **how) do |read|
          @answer.send_now(JsonText.line(objects: read) << "\n") if shows
        end
        text = Arguments.flag(:rendering, rendering) ? { text: found.to_s } : {}
        { pid: Native.pid, **found.to_h, **text }
      end

      def live_objects
        GC.stat(:heap_live_slots)
      end

      # Without /proc this figure is missing, and the others are still returned.
      def rss_bytes
        Memintro.rss
      rescue Error, SystemCallError
        nil
      end
    end
  end
end
