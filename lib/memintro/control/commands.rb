# frozen_string_literal: true

require_relative "json"
require_relative "../report/table"

module Memintro
  module Control
    # All that can be asked of a process through its socket. Nothing is evaluated: a command is one of {NAMES}, its
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
        @answer.write(Json.generate(value) << "\n")
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

      # The sites that matter most; with `older_than` only those whose blocks outlived so many collections.
      def top(n: Report::DEFAULT_TOP, by: "live_bytes", older_than: nil, format: "text", app_root: nil)
        return report(format: format, top: n, by: by, app_root: app_root) if older_than.nil?

        format = Arguments.choice(:format, format, Report::FORMATS.keys)
        root = Arguments.text(:app_root, app_root, optional: true) || Memintro.configuration.app_root
        sites = Memintro.top(n, by: by, older_than: older_than)
        return json(process: CallSites.take(most: 0).process, call_sites: sites.map(&:to_h)) if format == :json

        head = "pid #{Native.pid}: #{Units.counted(sites.size, 'call site')} with blocks that outlived " \
               "#{Units.counted(older_than, 'collection')}, by #{by}"
        names = Report::Names.new(root)
        @answer.write([head, "", *old(sites, names, Report::Style.for(@answer))].join("\n") << "\n")
      end

      def old(sites, names, style)
        rows = sites.map do |site|
          [site.shown(:live_bytes, &Units.method(:bytes)), site.shown(:live_blocks, &Units.method(:count)),
           names.short(site)]
        end
        lines = Report::Table.new(%w[live blocks], "call site", rows).lines(style)
        return lines unless sites.any?(&:estimated?)

        [*lines, "", style.warn("note: ") + Estimates.caution(Native.sample_bytes)]
      end

      def report(format: "text", top: Report.default_top(format), by: "live_bytes", app_root: nil)
        @answer.format = format.to_sym if format.is_a?(String)
        Memintro.report(@answer, format: format, top: top, by: by, app_root: app_root)
      end

      # As {Memintro.snapshot} saves it. With `settle`, for comparisons, what a snapshot itself leaves behind is no
      # growth: one is thrown away, so that all code is loaded, and garbage is collected before the one that counts.
      def snapshot(parts: [], settle: false)
        allowed = [:all, *Snapshot::Parts::ALL]
        parts = Arguments.array(:parts, parts).map { |part| Arguments.choice(:parts, part, allowed) }
        settle_for(parts) if Arguments.flag(:settle, settle)
        text = Memintro.snapshot(*parts).to_json
        @answer.format = :json
        @answer.write(text.end_with?("\n") ? text : "#{text}\n")
      end

      # In a thread, whose stack cannot keep any of it alive afterwards.
      def settle_for(parts)
        Thread.new do
          Thread.current.report_on_exception = false
          Memintro.untracked { Memintro.snapshot(*parts).to_json && nil }
        ensure
          # It has inherited that signals are blocked, and Ruby lends its native thread to the next one.
          Native.accept_signals
        end.join
        GC.start
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
        name = Report::Names.utf8(site.name)
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
