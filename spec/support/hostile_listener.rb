# frozen_string_literal: true

require "json"
require "socket"

# A listener at the socket of a process, with any answer that an example wants.
class HostileListener
  # Valid answers by command, so that an example can change one part.
  def self.honest(pid)
    totals = { allocated_bytes: 10, freed_bytes: 0, live_bytes: 10, allocations: 1, frees: 0, live_blocks: 1,
               missed_frees: 0, tracker_bytes: 0, dropped: 0 }
    site = { kind: "ruby", name: "a.rb:1", path: "a.rb", lineno: 1, live_bytes: 10, live_blocks: 1, total_bytes: 10,
             freed_bytes: 0, allocations: 1, frees: 0, mean_lifespan: 0.0, max_lifespan: 0, age_total: 0, growth: 10 }
    report = { version: 1, process: { pid: pid, program: "p", tracking: true, mode: "full" }, totals: totals,
               call_sites: [site] }
    { "info" => { pid: pid, ppid: 1, name: nil, program: "p", ruby: "3.1.2", memintro: "0.1.0", tracking: false,
                  mode: "off", preloaded: false, rss_bytes: 1, since: "2026-01-01T00:00:00Z", commands: ["info"] },
      "start" => { state: "started", mode: "full", tracking: true },
      "stop" => { state: "stopped", totals: totals },
      "mark" => { tracking: true, totals: totals }, "clear" => { tracking: true, totals: totals },
      "gc" => { took_ms: 1.0, live_objects_before: 2, live_objects: 1, rss_bytes_before: 2, rss_bytes: 1 },
      "doctor" => { memintro: "0.1.0", ruby: "3.1.2", mode: "off", slots: { patched: 1 }, left_alone: [],
                    problems: [], notes: [], escapes: [] },
      "report" => report, "top" => report,
      "vitals" => { pid: pid, name: nil, program: "p", time: 1.0, rss_bytes: 1, live_objects: 1,
                    gc: { count: 1, minor: 1, major: 0, time_ms: 1 }, tracking: false, mode: "off", totals: totals,
                    sites: [] } }
  end

  # @return [String] a header and what follows it
  def self.answer(body, **header)
    body = JSON.generate(body) unless body.is_a?(String)
    "#{JSON.generate({ ok: true, memintro: '0.1.0', protocol: 1, program: 'p', bytes: body.bytesize,
                       format: 'json' }.merge(header))}\n#{body}"
  end

  # @yieldparam command [String] that is asked
  # @yieldparam socket [Socket] to write to; it is closed afterwards
  def initialize(path, &behaviour)
    @path = path
    @server = UNIXServer.new(path)
    @clients = []
    @behaviour = behaviour
    @thread = Thread.new { loop { serve(@server.accept) } }
    @thread.report_on_exception = false
  end

  def close
    [@thread, *@clients].each(&:kill).each(&:join)
    @server.close
    File.unlink(@path) if File.exist?(@path)
  end

  private

  def serve(socket)
    # A fuzzer has a million.
    @clients.select!(&:alive?)
    @clients << Thread.new do
      Thread.current.report_on_exception = false
      command = JSON.parse(socket.gets.to_s)["command"]
      @behaviour.call(command, socket)
    rescue SystemCallError, IOError, JSON::ParserError
      nil # the client has seen enough
    ensure
      socket.close
    end
  end
end
