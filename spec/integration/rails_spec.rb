# frozen_string_literal: true

require_relative "../spec_helper"

# memintro/railtie in a real application, with Debian's Rails under Debian's Puma.
RSpec.describe "memintro/railtie" do
  before(:all) do
    found = run_ruby(code: "require 'rails'; require 'action_controller/railtie'", requires: [])
    @reason = "no Rails for this Ruby here (Debian's ruby-railties)" unless found.success?
  end

  before { skip(@reason || PumaServer.missing) if @reason || PumaServer.missing }

  application = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "rails.ru")

  def line(server, path)
    server.wait("log #{path}") { server.lines.find { |line| line.include?("path=#{path} ") } }
  end

  it "logs each request to Rails' log, with Rails' request id and the controller's action" do
    PumaServer.run(application) do |server|
      answer = server.get("/posts/7/3000000?secret=1")
      expect(answer.body.size).to eq(3_000_000)
      id = answer["x-request-id"]
      text = line(server, "/posts/7/3000000")
      expect(text).to match(/ status=200 .* request_id=#{id} action=posts#show\z/)
      expect(text[/malloc_bytes=(\d+)/, 1].to_i).to be_between(3_000_000, 4_500_000)
      expect(server.log).to match(/^I, \[.* INFO -- : MEMORY method=GET path=\/posts/)

      expect(server.get("/broken").code).to eq("500")
      expect(line(server, "/broken")).to match(/ status=500 .* action=posts#broken\z/)
      expect(server.get("/up").body).to eq("up")
      expect(server.get("/nowhere").code).to eq("404")
      expect(line(server, "/nowhere")).not_to include("action=")
      expect(server.lines.grep(/secret|path=\/up /)).to eq([])
    end
  end

  it "has no figures of the thread for ActionController::Live, whose actions run in another" do
    PumaServer.run(application) do |server|
      expect(server.get("/live/100000").body.size).to eq(300_000)
      text = line(server, "/live/100000")
      expect(text).to match(/ status=200 duration_ms=\S+ rss_bytes=\d+ rss_delta_bytes=.* action=live#show\z/)
      expect(text).not_to match(/malloc|freed/)
      expect(server.get("/posts/1/10").code).to eq("200")
      expect(line(server, "/posts/1/10")).to match(/ malloc_bytes=\d+ malloc_calls=\d+ process_objects=/)
    end
  end

  it "takes its settings from config.memintro" do
    settings = "fields=%i[path action malloc_bytes],format=:json,start=nil"
    PumaServer.run(application, env: { "SETTINGS" => settings, "TRACK" => "no" }) do |server|
      server.get("/posts/1/10")
      text = server.wait("log") { server.log[/\{"event":"MEMORY".*posts.*\}/] }
      expect(JSON.parse(text)).to eq("event" => "MEMORY", "path" => "/posts/1/10", "action" => "posts#show")
    end
  end

  it "samples if configured, and passes the middleware its options" do
    PumaServer.run(application, env: { "SETTINGS" => "start=:sampled,over=1_000_000" }) do |server|
      %w[/posts/1/10 /posts/2/3000000 /posts/3/10].each { |path| expect(server.get(path).code).to eq("200") }
      text = line(server, "/posts/2/3000000")
      expect(text[/ malloc_bytes=(\d+) process_objects=/, 1].to_i).to be_between(3_000_000, 4_500_000)
      expect(server.lines.grep(%r{path=/posts/}).size).to eq(1)
    end
  end

  it "is not there where it is not enabled" do
    PumaServer.run(application, env: { "SETTINGS" => "enabled=false" }) do |server|
      expect(server.get("/posts/1/10").code).to eq("200")
      expect(server.lines).to eq([])
    end
  end

  it "tracks the objects of config.memintro.objects" do
    code = <<~RUBY
      require "rails"
      require "memintro/railtie"
      Memintro::Railtie.start(true, ["Message"])
      class Message; end
      kept = Array.new(30) { [Message.new] }
      print Memintro.mode, " ", Memintro.top(nil).sum(&:live_objects)
    RUBY
    expect(run_ruby(code: code).must_succeed.stdout).to eq("full 30")
  end

  it "says which setting there is not" do
    expect { PumaServer.run(application, env: { "SETTINGS" => "evry=5" }) {} }
      .to raise_error(/config.memintro has no evry; it has enabled, start, objects, hunt, on_finding, fields, /)
  end

  it "has the settings that docs/rack.md shows" do
    shown = Documents.blocks("ruby config/application.rb").first.code
    settings = shown.scan(/^config\.memintro\.(\w+) = (.*?)(?: +#.*)?$/)
    expect(settings.size).to be >= 4
    # A list's own comma is no end of a setting here.
    text = settings.map { |name, value| "#{name}=#{value.sub('["/assets", "/up"]', '%w[/assets /up]')}" }.join(",")
    PumaServer.run(application, env: { "SETTINGS" => text }) do |server|
      10.times { expect(server.get("/posts/1/1").code).to eq("200") }
      server.wait("log one in ten") { server.lines.grep(/path=\/posts/).size == 1 }
    end
  end
end
