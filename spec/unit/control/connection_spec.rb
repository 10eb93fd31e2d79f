# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/control"
require "socket"

RSpec.describe Memintro::Control::Connection do
  let(:pair) { UNIXSocket.pair }
  let(:client) { pair[1] }
  let(:connection) { described_class.new(pair[0], Memintro::Control::Server.new(nil)) }
  # Far more than the kernel keeps for a socket.
  let(:bytes) { 16_000_000 }

  before do
    stub_const("#{described_class}::WRITE_SECONDS", 0.5)
    size = bytes
    allow(Memintro::Control::Commands).to receive(:new) do |_, answer|
      instance_double(Memintro::Control::Commands).tap do |commands|
        allow(commands).to receive(:run) { answer.write("x" * size) }
      end
    end
    client.write("{\"command\":\"report\"}\n")
    connection.read
  end

  after { pair.each(&:close) }

  # Seconds until the connection is closed, or nil, while the client reads this many bytes every 20 ms.
  def closed_after(taken, most)
    begun = described_class.now
    while described_class.now - begun < most
      connection.write if connection.wants_to_write?
      connection.expire
      return described_class.now - begun if connection.closed?

      client.read_nonblock(taken, exception: false)
      sleep(0.02)
    end
  end

  it "ends with a client that takes a byte now and then" do
    expect(closed_after(1, 20)).to be_between(0.5, 10)
  end

  it "waits for a client that takes what it is sent, however long that is" do
    expect(closed_after(65_536, 2)).to be_nil
    expect(connection).to be_answering
  end
end
