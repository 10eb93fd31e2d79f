# frozen_string_literal: true

require_relative "../spec_helper"
require "json"
require "logger"
require "stringio"
require "time"
require "memintro"

begin
  require "memintro/rack"
rescue LoadError
  nil # said below
end

# The middleware without tracking: what it logs, and when. spec/integration/rack_spec.rb has the rest.
RSpec.describe "Memintro::Middleware" do
  before { skip "no Rack here (Debian's ruby-rack)" unless defined?(Memintro::Middleware) }

  let(:log) { StringIO.new }
  let(:answer) { [200, { "content-type" => "text/plain" }, ["hello"]] }

  def env(path = "/posts", **more)
    { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => path, **more.transform_keys(&:to_s) }
  end

  def middleware(app = ->(_env) { answer }, **options)
    Memintro::Middleware.new(app, **{ logger: log, **options })
  end

  def lines = log.string.lines(chomp: true)
  def paths = lines.map { |line| line[/path=(\S+)/, 1] }

  it "logs a line with the fields that it promises, in their order, and passes the answer on untouched" do
    given = middleware.call(env("/posts", HTTP_X_REQUEST_ID: "r-1"))
    expect(given).to equal(answer)
    expect(lines.size).to eq(1)
    line = lines[0].sub(/ time=\S+Z\z/, " time=T")
    expect(line.gsub(/(?<==)-?\d+(?=\.?\d* |$)(\.\d)?/) { |number| number.include?(".") ? "F" : "N" })
      .to eq("MEMORY method=GET path=/posts status=N duration_ms=F rss_bytes=N rss_delta_bytes=N process_objects=N " \
             "process_gc_ms=F in_flight=N pid=N tid=N request_id=r-1 time=T")
    expect(lines[0]).to include(" status=200 ", " in_flight=1 pid=#{Process.pid} ")
    expect(lines[0][/rss_bytes=(\d+)/, 1].to_i).to be_within(50_000_000).of(Memintro.rss)
    expect(lines[0]).to include("tid=#{Thread.current.native_thread_id} ")
  end

  it "says what the process did meanwhile, whichever thread did it" do
    work = lambda do |e|
      Thread.new { Array.new(50_000) { Object.new } && 5.times { GC.start } }.join if e["PATH_INFO"] == "/work"
      answer
    end
    app = middleware(work, fields: %i[process_objects process_gc_ms])
    2.times { app.call(env("/idle")) }
    app.call(env("/work"))
    figures = lines.map { |line| line.scan(/=(\S+)/).flatten.map(&:to_f) }
    expect(figures.last).to match([be_between(50_000, 60_000), be > 0])
    expect(figures[1]).to match([be_between(0, 1_000), be < figures.last[1]])
  end

  it "leaves the thread's figures out, rather than 0, while nothing is tracked" do
    middleware.call(env)
    expect(lines[0]).not_to match(/malloc|freed/)
  end

  it "logs the fields that were asked for, in JSON too" do
    middleware(fields: %i[status path time]).call(env)
    expect(lines[0]).to match(/\AMEMORY status=200 path=\/posts time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/)
    middleware(format: :json, fields: %i[status path malloc_bytes duration_ms]).call(env)
    expect(JSON.parse(lines[1])).to match("event" => "MEMORY", "status" => 200, "path" => "/posts",
                                          "duration_ms" => a_kind_of(Float))
  end

  describe "the time" do
    def logged(formatter: nil, **options)
      middleware(logger: Logger.new(log, formatter: formatter), **options).call(env)
      lines.last
    end

    it "is the last field, and that of the moment, where nothing else writes it" do
      before = Time.now.floor(3)
      middleware.call(env)
      said = Time.iso8601(lines[0][/ time=(\S+)\z/, 1])
      expect(said).to be_between(before, Time.now).and be_utc
    end

    it "is left to a logger, unless its formatter leaves it out" do
      expect(logged).to match(/\AI, \[.* INFO -- : MEMORY method=GET .* tid=\d+\z/)
      stub_const("ActiveSupport::Logger::SimpleFormatter",
                 Class.new(Logger::Formatter) { def call(_severity, _time, _program, text) = "#{text}\n" })
      expect(logged(formatter: ActiveSupport::Logger::SimpleFormatter.new)).to match(/\AMEMORY .* time=\S+Z\z/)
    end

    it "is in JSON always, through a logger too" do
      middleware(format: :json).call(env)
      expect(JSON.parse(lines[0]).keys.last).to eq("time")
      expect(JSON.parse(logged(format: :json)[/{.*/])["time"]).to match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/)
    end

    it "is not there when fields: does not name it" do
      middleware(fields: %i[path]).call(env)
      middleware(fields: %i[path], format: :json).call(env)
      expect(lines).to eq(["MEMORY path=/posts", '{"event":"MEMORY","path":"/posts"}'])
    end
  end

  it "refuses wrong options in words" do
    expect { middleware(fields: [:size]) }.to raise_error(ArgumentError, /fields is :size; it must be one of :method,/)
    expect { middleware(fields: :path) }.to raise_error(TypeError, /fields is :path; it must be an Array/)
    expect { middleware(format: :xml) }.to raise_error(ArgumentError, /format is :xml; it must be one of :logfmt, :js/)
    expect { middleware(one_in: 0) }.to raise_error(ArgumentError, /one_in is 0/)
    expect { middleware(over: "1MB") }.to raise_error(TypeError, /over is "1MB"/)
    expect { middleware(skip: 5) }.to raise_error(TypeError, /skip is 5; it must be a String, a Regexp, a callable/)
    expect { middleware(logger: 5) }.to raise_error(TypeError, /logger is 5; it must have a method info or write/)
    expect { middleware(evry: 5) }.to raise_error(ArgumentError, /unknown keyword: :evry/)
  end

  it "logs one in a number of requests, and all over a bound" do
    app = middleware(one_in: 5)
    12.times { |i| app.call(env("/#{i}")) }
    expect(paths).to eq(%w[/4 /9])

    log.truncate(log.rewind)
    # Too large for memory that glibc has kept, which would not be growth.
    kept = []
    big = ->(e) { (e["PATH_INFO"] == "/big" ? (kept << ("x" * 80_000_000)) : kept) && answer }
    app = middleware(big, over: 20_000_000)
    # Memory that other examples have left must not be given back meanwhile.
    GC.start
    %w[/a /big /b].each { |path| app.call(env(path)) }
    expect(paths).to eq(%w[/big])

    log.truncate(log.rewind)
    app = middleware(big, over: 20_000_000, one_in: 2)
    %w[/a /big /b /c].each { |path| app.call(env(path)) }
    expect(paths).to eq(%w[/big /b])
  end

  it "skips by the path's beginning, by a pattern, by a callable" do
    app = middleware(skip: ["/assets", %r{\A/up\z}, ->(e) { e["HTTP_X_PROBE"] }])
    [env("/assets/a.js"), env("/up"), env("/upload"), env("/x", HTTP_X_PROBE: "1"), env("/x"), env("/\xFF\xFE".b)]
      .each { |one| expect(app.call(one)).to equal(answer) }
    expect(paths).to eq(["/upload", "/x", "\"/\\xFF\\xFE\""])
  end

  it "is not disturbed by a skip that raises" do
    app = middleware(skip: ->(_env) { raise "broken" })
    expect { expect(app.call(env)).to equal(answer) }
      .to output(/a line is lost, and perhaps others: RuntimeError: broken/).to_stderr_from_any_process
    expect(paths).to eq(["/posts"])
  end

  it "keeps the path and the method as they came" do
    app = middleware(lambda { |e|
      e["SCRIPT_NAME"] = "/app"
      e["PATH_INFO"] = "/changed"
      e["REQUEST_METHOD"] = "PATCH"
      answer
    })
    app.call(env("/app/posts"))
    expect(lines[0]).to start_with("MEMORY method=GET path=/app/posts ")
  end

  describe "the logger" do
    it "is the injected one, else rack.logger, else Rails', else standard error" do
      rack = StringIO.new
      rails = StringIO.new
      middleware.call(env("/1", "rack.logger": Logger.new(rack)))
      middleware(logger: nil).call(env("/2", "rack.logger": Logger.new(rack)))
      stub_const("Rails", Struct.new(:logger).new(Logger.new(rails)))
      middleware(logger: nil).call(env("/3"))
      hide_const("Rails")
      expect { middleware(logger: nil).call(env("/4")) }.to output(/\AMEMORY method=GET path=\/4 .*\n\z/).to_stderr
      expect([log, rack, rails].map { |io| io.string.scan(/path=(\S+)/).flatten }).to eq([%w[/1], %w[/2], %w[/3]])
      expect(rack.string).to match(/ INFO -- : MEMORY method=GET /)
    end

    it "is not Rack's NullLogger, which Sinatra puts in place where no log was asked for" do
      require "rack"
      expect { middleware(logger: nil).call(env("/5", "rack.logger": Rack::NullLogger.new(nil))) }
        .to output(/\AMEMORY method=GET path=\/5 .*\n\z/).to_stderr
    end

    it "may raise, and the application never notices; the first error is on standard error" do
      [StandardError, NotImplementedError, LoadError].each do |kind|
        broken = Object.new
        broken.define_singleton_method(:info) { |_line| raise kind, "no more" }
        app = middleware(logger: broken)
        expect { 3.times { expect(app.call(env)).to equal(answer) } }
          .to output(/\Amemintro: a line is lost, and perhaps others: #{kind}: no more\n\z/).to_stderr_from_any_process
      end
    end

    it "may be on a full disk" do
      File.open("/dev/full", "w") do |full|
        full.sync = true
        app = middleware(logger: full)
        expect { 3.times { expect(app.call(env)).to equal(answer) } }
          .to output(/\Amemintro: a line is lost.*ENOSPC.*\n\z/).to_stderr_from_any_process
      end
    end
  end

  it "logs a request that raises, without a status, and lets the exception pass" do
    app = middleware(->(_env) { raise IOError, "gone" })
    expect { app.call(env) }.to raise_error(IOError, "gone")
    expect(lines).to match([/\AMEMORY method=GET path=\/posts duration_ms=.* error=IOError time=\S+Z\z/])
  end

  it "logs a request that throws, and lets it pass" do
    app = middleware(->(_env) { throw :warden, 401 })
    expect(catch(:warden) { app.call(env) }).to eq(401)
    expect(lines).to match([/\AMEMORY method=GET path=\/posts duration_ms=((?!error|status).)*\z/])
  end

  it "takes no older exception for its own" do
    raise "older"
  rescue RuntimeError
    catch(:warden) { middleware(->(_env) { throw :warden }).call(env) }
    expect(lines[0]).not_to include("error=")
  end

  it "waits for a body until it is closed, and closes it once" do
    body = Struct.new(:closed) do
      def each = yield("part")
      def close = self.closed += 1
    end.new(0)
    status, headers, given = middleware(->(_env) { [201, {}, body] }).call(env)
    expect([status, headers, lines]).to eq([201, {}, []])
    expect { |block| given.each(&block) }.to yield_with_args("part")
    2.times { given.close }
    expect(body.closed).to eq(1)
    expect(lines.size).to eq(1)
    expect(lines[0]).to include("status=201 ")
  end

  it "waits for a server that tells when it has finished, and leaves the body alone" do
    body = [+"a"].each
    callbacks = []
    given = middleware(->(_env) { [200, {}, body] }).call(env("/posts", "rack.response_finished": callbacks))
    expect(given[2]).to equal(body)
    expect(lines).to eq([])
    callbacks.reverse_each { |callback| callback.call({}, 502, {}, EOFError.new) }
    expect(lines).to match([/ status=502 .* error=EOFError time=\S+Z\z/])
  end

  it "counts the requests in flight, of all its instances" do
    inner = middleware
    outer = middleware(->(_env) { 2.times { inner.call(env("/in")) } && answer }, fields: %i[path in_flight])
    outer.call(env("/out"))
    middleware(fields: %i[path in_flight]).call(env("/after"))
    expect(lines.map { |line| line[/path=\S+/] + line[/ in_flight=\d+/] })
      .to eq(["path=/in in_flight=2", "path=/in in_flight=2", "path=/out in_flight=1", "path=/after in_flight=1"])
  end

  it "is not disturbed by being in place twice" do
    twice = Memintro::Middleware.new(middleware, logger: log)
    one = env
    2.times { twice.call(one) }
    expect(lines.size).to eq(2)
    expect(one).not_to include(Memintro::Middleware::KEY)
  end

  it "keeps Rack's rules, before and behind it" do
    require "rack"
    parts = [+"a"].each
    linted = Rack::Lint.new(middleware(Rack::Lint.new(->(_env) { [200, { "content-type" => "text/plain" }, parts] })))
    version = Rack.release.to_i >= 3 ? {} : { "rack.version": [1, 3], "rack.multithread": true,
                                              "rack.multiprocess": false, "rack.run_once": false }
    input = StringIO.new.set_encoding(Encoding::BINARY)
    callbacks = []
    [{}, { "rack.response_finished": callbacks }].each do |more|
      one = env(SERVER_NAME: "x", SERVER_PORT: "80", SERVER_PROTOCOL: "HTTP/1.1", QUERY_STRING: "",
                "rack.url_scheme": "http", "rack.input": input, "rack.errors": StringIO.new, **version, **more)
      _, _, body = linted.call(one)
      body.each { |part| expect(part).to eq("a") }
      body.close
      callbacks.each { |callback| callback.call(one, 200, {}, nil) }
    end
    expect(lines.size).to eq(2)
  end

  it "may be frozen, as Rack::Builder freezes what it built, and keeps nothing of a request" do
    app = middleware(one_in: 2).freeze
    before = app.instance_variables.to_h { |name| [name, app.instance_variable_get(name)] }
    4.times { app.call(env) }
    expect(lines.size).to eq(2)
    expect(app.instance_variables.to_h { |name| [name, app.instance_variable_get(name)] }).to eq(before)
  end

  it "says posts#show and Rails' request id where Rails handled the request" do
    parameters = { controller: "posts", action: "show", id: "1" }
    middleware.call(env("/posts/1", "action_dispatch.request.path_parameters": parameters,
                                    "action_dispatch.request_id": "f00", HTTP_X_REQUEST_ID: "other"))
    expect(lines[0]).to match(/ request_id=f00 action=posts#show time=\S+Z\z/)
  end
end
