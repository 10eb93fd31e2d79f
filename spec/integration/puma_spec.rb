# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# The middleware and the plugin under a real Puma.
RSpec.describe "Puma" do
  before { skip PumaServer.missing if PumaServer.missing }

  PLAIN = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "plain.ru")

  # The line of a path, once it is there.
  def line(server, path)
    text = server.wait("log #{path}") { server.lines.find { |line| line.include?("path=#{path} ") } }
    text.scan(/(\w+)=(\S+)/).to_h.transform_keys(&:to_sym)
  end

  describe "with the middleware" do
    %w[outside inside].each do |side|
      it "logs each request with the thread's own figures, with a Rack::Lint #{side}" do
        PumaServer.run(PLAIN, env: { "TRACK" => "1", "LINT" => side }, arguments: ["-t", "4:4"]) do |server|
          expect(server.get("/bytes/5000000").body).to eq("done")
          expect(server.get("/same/100000/30").body.size).to eq(3_000_000)
          expect(server.get("/stream/100000/30").body.size).to eq(3_000_000)
          expect(server.get("/a%20b%0AMEMORY").body).to eq("hello")
          expect(server.get("/raise").code).to eq("500")

          expect(line(server, "/bytes/5000000")[:malloc_bytes].to_i).to be_between(5_000_000, 5_100_000)
          streamed = line(server, "/stream/100000/30")
          expect(streamed[:malloc_bytes].to_i - line(server, "/same/100000/30")[:malloc_bytes].to_i)
            .to be_within(150_000).of(29 * 100_000)
          expect(streamed[:status]).to eq("200")
          expect(line(server, "/raise")).to include(error: "RuntimeError")
            .and(satisfy { |fields| !fields.key?(:status) })
          expect(server.lines).to all(match(/\AMEMORY method=GET path=/))
          expect(server.log).not_to include("LintError")
        end
      end
    end

    it "does not change how an Array is sent" do
      PumaServer.run(PLAIN) do |server|
        expect(server.get("/x").to_hash).to include("content-length" => ["5"])
      end
    end

    it "leaves out what it cannot know of a connection that was taken over" do
      PumaServer.run(PLAIN, env: { "TRACK" => "1" }) do |server|
        expect(server.get("/hijack").body).to eq("hi")
        expect(line(server, "/hijack").keys).to include(:rss_bytes)
        expect(line(server, "/hijack").keys & %i[status malloc_bytes malloc_calls freed_bytes]).to eq([])
        expect(server.get("/partial").body).to eq("late")
        expect(line(server, "/partial")).to include(:malloc_bytes, status: "200")
      end
    end

    it "keeps the figures of sixteen threads apart" do
      PumaServer.run(PLAIN, env: { "TRACK" => "1" }, arguments: ["-t", "16:16"]) do |server|
        sizes = Array.new(16) { |i| (i + 1) * 20_000 }
        # Puma's own buffers come on top: up to twice what is sent, depending on its version. Told by one request alone.
        buffers = sizes.to_h do |size|
          server.get("/same/#{size}/20")
          [size, line(server, "/same/#{size}/20")[:malloc_bytes].to_i - size]
        end
        clients = sizes.map { |size| Thread.new { Array.new(5) { server.get("/stream/#{size}/20").body.size } } }
        expect(clients.map { |client| client.join(120)&.value }).to eq(sizes.map { |size| [20 * size] * 5 })
        server.wait("log 80 lines") { server.lines.grep(%r{/stream/}).size == 80 }
        server.lines.grep(%r{/stream/}).each do |text|
          size = text[%r{/stream/(\d+)}, 1].to_i
          # From one size to the next it is 400,000 bytes.
          expect(text[/malloc_bytes=(\d+)/, 1].to_i).to be_within(150_000).of(buffers[size] + (20 * size)), text
        end
      end
    end
  end

  describe "in a cluster whose workers load the program, each for itself", :listening do
    # The master has never heard of memintro.
    def cluster
      env = listening_env("MEMINTRO_LISTEN" => "1")
      PumaServer.run(PLAIN, env: env, arguments: ["-w", "2", "-t", "1:1"]) do |server|
        @workers = eventually { sockets.map(&:to_i).sort.then { |pids| pids if pids.size == 2 } }
        expect(@workers).not_to include(server.pid)
        yield server
      end
    end

    def asked(*arguments) = memintro(*arguments).must_succeed.tap { |result| expect(result.stderr).to eq("") }.stdout

    def pids_in(text) = text.scan(/^process (\d+) /).flatten.map(&:to_i)

    it "is asked as a whole by the master's number and by name" do
      cluster do |server|
        expect(pids_in(asked("start", "puma", "--workers"))).to eq(@workers)
        again = asked("start", server.pid, "--workers")
        expect(pids_in(again)).to eq(@workers)
        expect(again.scan("tracked already").size).to eq(2)
        bytes = 10.times.sum { |i| server.get("/bytes/#{5_000_000 + i}") && (5_000_000 + i) }
        sum = JSON.parse(asked("top", server.pid, "--workers", "--json", "--by", "total_bytes"))
        line = sum["call_sites"].find { |site| site["name"].match?(/plain\.ru:\d+\z/) }
        expect(line["total_bytes"]).to be_between(bytes, bytes + 1_000_000)
        members = asked("top", "puma", "--workers").split("\n\n").first.lines.drop(1)
        expect(members.map(&:to_i)).to eq(@workers)
        expect(pids_in(asked("histogram", server.pid, "--workers", "--top", "1"))).to eq(@workers)
        expect(pids_in(asked("stop", "puma", @workers.first, server.pid, "--workers"))).to eq(@workers)
      end
    end

    it "says how the workers are meant, where only the master's number or a name is given" do
      cluster do |server|
        expect(memintro("start", server.pid).stderr)
          .to match(/\Amemintro: process #{server.pid} \(puma .*\) does not listen, but 2 processes below it do: with/)
        expect(memintro("start", "puma").stderr)
          .to match(/\Amemintro: 2 processes are called "puma"; give the PID of one, or --workers for all of /)
        silent = start_program("puts :ready; sleep")
        expect(memintro("start", silent.pid, "--workers").stderr)
          .to match(/\Amemintro: process #{silent.pid} \(.*\) does not listen; it cannot be changed from outside/)
      end
    end
  end

  # As a Rails application in production: the master loads the program, and listens.
  describe "in a cluster whose master loads the program", :listening do
    it "counts each of the workers' threads, and has no warning of Puma's about threads of memintro's" do
      rackup = File.join(socket_folder, "config.ru")
      File.write(rackup, <<~'RUBY')
        require "fiddle"
        require "memintro"
        run ->(env) { sleep(0.02) if Fiddle.malloc(60_000); [200, {}, [Process.pid.to_s]] }
      RUBY
      env = listening_env("MEMINTRO_LISTEN" => "1")
      PumaServer.run(rackup, env: env, arguments: ["-w", "2", "-t", "4:4", "--preload"]) do |server|
        eventually { sockets.size == 3 }
        memintro("start", server.pid, "--workers").must_succeed
        asked = Array.new(8) { Thread.new { Array.new(20) { server.get("/").body.to_i } } }.flat_map(&:value)
        asked.tally.each do |worker, requests|
          sites = JSON.parse(memintro("report", worker, "--json").must_succeed.stdout)["call_sites"]
          expect(sites.find { |site| site["name"] == "#{rackup}:3" }["live_bytes"] / 60_000).to eq(requests)
        end
        # Paths are relative to the folder of the server, also from elsewhere.
        tables = [[asked.first], [server.pid, "--workers"]].map do |who|
          memintro("top", *who, chdir: socket_folder).must_succeed.stdout
        end
        expect(tables).to all(match(/^.* #{Regexp.escape(rackup)}:3$/))
        expect(server.log).not_to include("Detected")
      end
    end
  end

  describe "with the plugin" do
    report = { "MEMINTRO_PUMA_EVERY" => "0.3" }

    it "logs the master, each worker and their total, in PSS, and sees a worker that is replaced" do
      config = "plugin :memintro\npreload_app!\n"
      PumaServer.run(PLAIN, config: config, env: report, arguments: ["-w", "2", "-t", "1:2"]) do |server|
        both = server.wait("log two workers") do
          server.lines.grep(/process=/).slice_when { |line, _| line.include?("process=total") }
                .find { |group| group.grep(/process=worker/).size == 2 && group.last.include?("process=total") }
        end
        expect(both.map { |line| line[/process=\w+( index=\d)?/] })
          .to eq(["process=master", "process=worker index=0", "process=worker index=1", "process=total"])
        pss = both.map { |line| line[/pss_bytes=(\d+)/, 1].to_i }
        rss = both.map { |line| line[/rss_bytes=(\d+)/, 1].to_i }
        expect(pss.last).to eq(pss.first(3).sum)
        # Shared memory counts once, so this is far less than the sum of RSS.
        expect(pss.last).to be_between(5_000_000, rss.last - 1)
        expect(both.first).to include(" pid=#{server.pid} ")
        expect(both.last).to include(" workers=2")

        old = both[1][/pid=(\d+)/, 1].to_i
        Process.kill(:KILL, old)
        server.wait("replace a worker") do
          server.lines.grep(/process=worker index=0/).any? { |line| !line.include?(" pid=#{old} ") }
        end
      end
    end

    it "logs the only process there is" do
      PumaServer.run(PLAIN, config: "plugin :memintro\n", env: report) do |server|
        line = server.wait("report") { server.lines.grep(/process=/).first }
        expect(line)
          .to match(/\AMEMORY process=single pid=#{server.pid} rss_bytes=\d+ pss_bytes=\d+ uss_bytes=\d+ time=\S+Z\z/)
      end
    end

    it "refuses a wrong interval in words" do
      expect { PumaServer.run(PLAIN, config: "plugin :memintro\n", env: { "MEMINTRO_PUMA_EVERY" => "often" }) {} }
        .to raise_error(/MEMINTRO_PUMA_EVERY is "often"; it must be a number of seconds above 0/)
    end
  end
end
