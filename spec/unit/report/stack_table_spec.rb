# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/malloc/call_sites"
require "memintro/report/report"
require "memintro/report/stack_table"

RSpec.describe Memintro::Report::StackTable do
  def site(*row) = Memintro::CallSite.new(row)

  Frame = Struct.new(:path, :line, :label)

  def stacked(site, *frames)
    site.dup.tap { |one| one.define_singleton_method(:stack) { frames } }
  end

  let(:leaf) { Frame.new("/app/a.rb", 3, "a") }
  let(:root) { Frame.new("/app/main.rb", 9, nil) }

  it "takes a site without a stack for a stack of one frame" do
    sites = [site(0, :ruby, "/app/a.rb", 3, 5, 2, 900, 400, 0, 0, 100),
             site(1, :pseudo, "(gc)", 0, 1, 0, 7, 0, 0, 0, 0),
             site(2, :native, "libfoo.so(bar+0x1c)", 0, 1, 0, 8, 0, 0, 0, 0)]
    table = described_class.from_sites(sites)
    expect(table.frames).to eq([["/app/a.rb", 3, nil], ["(gc)", 0, nil], ["libfoo.so(bar+0x1c)", 0, nil]])
    expect(table.rows).to eq([[[0], 500, 900, 400, 0, 0, 0], [[1], 7, 7, 7, 0, 0, 0], [[2], 8, 8, 8, 0, 0, 0]])
  end

  it "has each frame of stacks once, and the root first" do
    one = site(0, :ruby, "/app/a.rb", 3, 5, 2, 900, 400, 0, 0, 100)
    table = described_class.from_sites([stacked(one, leaf, root), stacked(one, root)])
    expect(table.frames).to eq([["/app/main.rb", 9, nil], ["/app/a.rb", 3, "a"]])
    expect(table.rows.map(&:first)).to eq([[0, 1], [0]])
  end

  it "has the slots of objects, and what of them is new since the mark" do
    tracked = site(0, :ruby, "/app/a.rb", 3, 0, 0, 0, 0, 0, 0, 0, nil, nil, [10, 4, 400, 160, 80, 0, 0])
    expect(described_class.from_sites([tracked]).rows).to eq([[[0], 0, 0, 0, 240, 400, 160]])
  end

  it "has the variances of estimates" do
    variances = [1.0, 2.0, 900.0, 400.0, 60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    sampled = site(0, :ruby, "/app/a.rb", 3, 5, 2, 900, 400, 0, 0, 100, variances)
    expect(described_class.from_sites([sampled]).rows)
      .to eq([[[0], 500, 900, 400, 0, 0, 0, [500.0, 900.0, 60.0, 0.0, 0.0, 0.0]]])
  end
end
