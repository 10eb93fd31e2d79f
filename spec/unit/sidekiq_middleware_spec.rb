# frozen_string_literal: true

require_relative "../spec_helper"
require "stringio"
require "memintro"
require "memintro/sidekiq"

RSpec.describe "Memintro::SidekiqMiddleware" do
  let(:log) { StringIO.new }
  let(:message) { { "class" => "Import", "jid" => "3d1c", "queue" => "low" } }

  def run(message, **options, &block)
    middleware = Memintro::SidekiqMiddleware.new({ logger: log, **options })
    middleware.call(Object.new, message, "low", &block || -> { :done })
  end

  def lines = log.string.lines(chomp: true)

  it "logs a line for a job and gives back what it gave" do
    expect(run(message)).to eq(:done)
    expect(lines.size).to eq(1)
    expect(lines[0]).to match(/\AMEMORY job=Import queue=low duration_ms=\S+ rss_bytes=\d+ rss_delta_bytes=-?\d+ pro/)
    expect(lines[0]).to match(/ in_flight=1 pid=#{Process.pid} tid=\d+ jid=3d1c time=\S+Z\z/)
  end

  it "lets an exception pass and names it" do
    expect { run(message) { raise IOError } }.to raise_error(IOError)
    expect(lines[0]).to match(/ jid=3d1c error=IOError time=\S+Z\z/)
  end

  it "names the job that Active Job or an extension has wrapped" do
    run(message.merge("class" => "Wrapper", "wrapped" => "Report"))
    run(message.merge("class" => "Wrapper", "wrapped" => "X", "display_class" => "Mailer#welcome"))
    expect(lines.map { |line| line[/job=(\S+)/, 1] }).to eq(["Report", "Mailer#welcome"])
  end

  it "counts turns over all of its instances; Sidekiq makes one for each job" do
    6.times { |i| run(message.merge("jid" => i.to_s), one_in: 3) }
    expect(lines.map { |line| line[/jid=(\S+)/, 1] }).to eq(%w[2 5])
  end

  it "refuses wrong options in words" do
    expect { run(message, fields: [:path]) }.to raise_error(ArgumentError, /fields is :path; it must be one of :job,/)
    expect { run(message, evry: 1) }.to raise_error(ArgumentError, /unknown keyword: :evry/)
  end
end
