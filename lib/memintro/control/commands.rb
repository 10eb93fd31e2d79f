# frozen_string_literal: true

require_relative "../support/json_text"
require_relative "../process/cgroup_files"
require_relative "../report/old_sites"
require_relative "../malloc/reader"
require_relative "../snapshot/parts"

module Memintro
  module Control
    # All that can be asked of a process through its socket. What may be large is made by the extension as JSON, without
    # Ruby objects; the client makes tables of it.
    #
    # All code is loaded with this file: to be asked must not make the process grow.
    # Nothing is evaluated: a command is one of {NAMES}, its
    # arguments are the keywords of the method of that name, and these are checked as the public API checks them.
    class Commands
      # Every command.
      NAMES = %w[info start stop mark clear top report snapshot doctor gc vitals].freeze

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
        send(name, **arguments)
        nil
      end

      private

      def check_keywords(name, arguments)
        known = (name == "start" ? SETTINGS : method(name).parameters.map(&:last)) + [:colour]
        unknown = arguments.keys - known
        return if unknown.empty?

        raise ControlError, "#{name} takes no #{unknown.first}; it takes #{known.join(', ')}"
      end

      def json(value)
        @answer.format = :json
        @answer.write(JsonText.line(value) << "\n")
      end

      # What `memintro ps` shows.
      def info
        json(pid: Native.pid, ppid: Process.ppid, name: @server.name, program: Protocol.program, ruby: RUBY_VERSION,
             memintro: VERSION, tracking: Memintro.tracking?, mode: Memintro.mode, preloaded: Memintro.preloaded?,
             rss_bytes: rss_bytes, since: @server.since.utc.strftime("%FT%TZ"), commands: NAMES)
      end

      def start(**settings)
        tracking = Memintro.tracking?
        epoch = Memintro.epoch
        before = [Memintro.mode, Native.sample_bytes]
        # What this thread allocates after the start, to say that it worked, is not the program's either.
        Native.load_hook
        Native.untracked_enter
        Memintro.start(**settings)
        state = state_after(tracking, before, anew: Memintro.epoch != epoch)
        json(state: state, mode: Memintro.mode, tracking: Memintro.tracking?)
      end

      # Another mode takes over and keeps what was collected, without a start.
      def state_after(tracking, before, anew:)
        return tracking ? "restarted" : "started" if anew

        before == [Memintro.mode, Native.sample_bytes] ? "unchanged" : "switched"
      end

      # What {Memintro.start} takes.
      SETTINGS = Memintro.method(:start).parameters.map(&:last).freeze
      private_constant :SETTINGS

      def stop
        tracking = Memintro.tracking?
        totals = Memintro.stop
        json(state: tracking ? "stopped" : "unchanged", totals: totals.to_h)
      end

      def mark
        Memintro.mark
        json(tracking: Memintro.tracking?, totals: Memintro.totals.to_h)
      end

      def clear
        Memintro.clear
        json(tracking: Memintro.tracking?, totals: Memintro.totals.to_h)
      end

      # The sites that matter most; with `older_than_gcs` only those whose blocks outlived so many collections. With
      # `rendering`, for who makes a table of the JSON, what a table says beside that.
      def top(n: Report::DEFAULT_TOP, by: "live_bytes", older_than_gcs: nil, older_than: nil, format: "text",
              app_root: nil, rendering: false)
        older = Arguments.count(:older_than, older_than, most: CallSite::MOST_AGE, optional: true)
        older_than_gcs = older if older_than_gcs.nil?
        if older_than_gcs.nil?
          return report(format: format, top: n, by: by, app_root: app_root, rendering: rendering)
        end

        format = Arguments.choice(:format, format, Report::FORMATS.keys)
        root = Arguments.text(:app_root, app_root, optional: true)
        return old_json(n, by, older_than_gcs, root, rendering) if format == :json

        sites = old_sites(few(:n, n, OLD_TEXT_ROWS), by, older_than_gcs)
        head = "pid #{Native.pid}: #{Units.counted(sites.size, 'call site')} with blocks that outlived " \
               "#{Units.counted(older_than_gcs, 'collection')}, by #{by}"
        names = Names.new(root || Memintro.configuration.app_root)
        lines = Report::OldSites.lines(sites, names, Style.for(@answer), Native.sample_bytes)
        @answer.write([head, "", *lines].join("\n") << "\n")
      end

      def old_json(count, by, older_than_gcs, root, rendering)
        sites = take_old(count, by, older_than_gcs)
        send_sites({ process: CallSites.head.last }, sites, root, Arguments.flag(:rendering, rendering))
      end

      def take_old(count, by, older_than_gcs)
        Arguments.count(:n, count, optional: true)
        Arguments.count(:older_than_gcs, older_than_gcs, most: CallSite::MOST_AGE)
        Native::Sites.take(count, Arguments.choice(:by, by, CallSite::FIGURES), older_than_gcs)
      end

      # Unlike {Memintro.top}, without objects for those that are left out.
      def old_sites(count, by, older_than_gcs)
        sites = take_old(count, by, older_than_gcs)
        CallSites::Reader.old_sites(JsonText.parse(Native::Text.report({}, sites, {}).to_s))
      ensure
        sites&.clear
      end

      def report(format: "text", top: Report.default_top(format), by: "live_bytes", app_root: nil, rendering: false)
        return json_report(top, by, app_root, rendering) if format == "json"

        Memintro.report(@answer, format: format, top: few(:top, top), by: by, app_root: app_root)
      end

      # A table makes some 50 objects for each of its rows in the process that is looked at.
      TEXT_ROWS = 20
      # With `older_than_gcs` it makes some 290.
      OLD_TEXT_ROWS = 5
      private_constant :TEXT_ROWS, :OLD_TEXT_ROWS

      def few(name, rows, most = TEXT_ROWS)
        Arguments.count(name, rows, optional: true)
        [rows || most, most].min
      end

      def json_report(top, by, app_root, rendering)
        Arguments.count(:top, top, optional: true)
        by = Arguments.choice(:by, by, CallSite::FIGURES)
        root = Arguments.text(:app_root, app_root, optional: true)
        totals, process = CallSites.head
        send_sites({ version: CallSites::LAYOUT, process: process, totals: totals.to_h },
                   Native::Sites.take(top, by, nil), root, Arguments.flag(:rendering, rendering))
      end

      # Call sites as JSON, made and sent by the extension.
      def send_sites(head, sites, root, rendering)
        @answer.send_text(Native::Text.report(head, sites, rendering ? { rendering: for_tables(sites, root) } : {}))
      ensure
        sites.clear
      end

      # Relative to what folder paths are shown, and what the sites come to that are left out.
      def for_tables(sites, root)
        { app_root: root || Memintro.configuration.app_root || current_folder, left_out: sites.left_out,
          live_bytes: sites.live_bytes_left_out, variance: sites.variance_left_out }
      end

      def current_folder
        Dir.pwd
      rescue SystemCallError
        nil # it has been removed
      end

      # As {Memintro.snapshot} saves it. With `settle`, for comparisons, garbage is collected before.
      def snapshot(parts: [], settle: false)
        allowed = [:all, *Snapshot::Parts::ALL]
        parts = Arguments.array(:parts, parts).map { |part| Arguments.choice(:parts, part, allowed) }
        GC.start if Arguments.flag(:settle, settle)
        @answer.send_text(Snapshot::Parts.json(Snapshot::Parts.check(parts), strict: !parts.include?(:all)))
      end

      def doctor(format: "text")
        format = Arguments.choice(:format, format, Report::FORMATS.keys)
        findings = Memintro.doctor
        return json(findings.to_h) if format == :json

        @answer.write("#{findings}\n")
      end

      # A full collection, as `GC.start`.
      def gc
        before = [live_objects, rss_bytes]
        begun = Connection.now
        GC.start
        took = ((Connection.now - begun) * 1_000).round(1)
        json(took_ms: took, live_objects_before: before[0], live_objects: live_objects,
             rss_bytes_before: before[1], rss_bytes: rss_bytes)
      end

      # What a live view redraws, some times a second.
      def vitals(top: 10, by: "live_bytes")
        Arguments.count(:top, top, optional: true)
        by = Arguments.choice(:by, by, CallSite::FIGURES)
        sites = Memintro.tracking? || Memintro.totals.allocations.positive? ? Memintro.top(top, by: by) : []
        json(pid: Native.pid, name: @server.name, program: Protocol.program, time: Time.now.to_f.round(3),
             rss_bytes: rss_bytes, live_objects: live_objects,
             gc: { count: GC.count, minor: GC.stat(:minor_gc_count), major: GC.stat(:major_gc_count),
                   time_ms: GC.stat(:time) },
             tracking: Memintro.tracking?, mode: Memintro.mode, totals: Memintro.totals.to_h,
             sites: sites.map { |site| vital_site(site) })
      end

      # What a live view shows of a site.
      VITAL = %i[live_bytes growth live_blocks allocations].freeze
      private_constant :VITAL

      # An estimate goes with its standard error. Of a long name the end says more.
      def vital_site(site)
        name = Names.utf8(site.name)
        name = "...#{name[-997..]}" if name.size > 1_000
        figures = { name: name,
                    **site.to_h.slice(*VITAL, :estimated, *VITAL.map { |figure| :"#{figure}_standard_error" }) }
        return figures unless (old = site.old)

        figures[:old_bytes] = old.live_bytes
        figures[:old_bytes_standard_error] = old.live_bytes_standard_error if old.estimated?
        figures
      end

      def live_objects
        GC.stat(:heap_live_slots)
      end

      # Without /proc there is none, and all else is worth having.
      def rss_bytes
        Memintro.rss
      rescue Error, SystemCallError
        nil
      end
    end
  end
end
