# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# `memintro report PID` of processes that track whole stacks: each by itself, and all together.
RSpec.describe "whole stacks of running processes", :listening do
  # The master leaks 30 blocks by one caller, and 10 by another; each of its two workers leaks 20 more by the first.
  SHOP = <<~RUBY
    Memintro.start(stack_depth: 8)
    KEEP = []
    def leak = KEEP << ("x" * 9_999)
    def order = leak
    def visit = leak
    30.times { order }
    10.times { visit }
    Memintro.listen
    2.times { fork { 20.times { order }; Memintro.mark; sleep } }
    puts :ready
    sleep
  RUBY

  # Bytes by the names of the innermost two frames.
  def callers(folded)
    folded.lines.each_with_object(Hash.new(0)) do |line, sums|
      frames, bytes = line.chomp.match(/\A(.*) (\d+)\z/).captures
      sums[frames.split(";").last(2).map { |frame| frame[/\A\S+/] }] += bytes.to_i
    end
  end

  def said(*arguments) = memintro(*arguments).must_succeed.stdout

  it "are in the JSON of a report, and added up over workers for folded, speedscope and a page" do
    pid = start_program(SHOP).pid
    eventually { memintro("ps", "--json").stdout.lines.size == 3 }
    eventually { callers(said("report", pid.to_s, "--workers", "--format", "folded"))[%w[order leak]] >= 1_299_870 }

    json = JSON.parse(said("report", pid.to_s, "--json"))
    leaks = json["stacks"].select { |row| row.last.to_a.first(2).map { |at| json["frames"][at][2] } == %w[leak order] }
    expect(leaks.sum { |row| row[5] - row[6] }).to be_between(299_970, 300_970)

    one = callers(said("report", pid.to_s, "--format", "folded"))
    all = callers(said("report", pid.to_s, "--workers", "--format", "folded"))
    [one, all].zip([[30, 10], [130, 30]]).each do |sums, (orders, visits)|
      expect(sums[%w[order leak]]).to be_between(orders * 9_999, (orders * 10_000) + 5_000)
      expect(sums[%w[visit leak]]).to be_between(visits * 9_999, (visits * 10_000) + 5_000)
    end
    profile = JSON.parse(said("report", pid.to_s, "--workers", "--format", "speedscope"))
    expect(profile["profiles"].first["endValue"]).to be >= 160 * 9_999

    page = File.join(socket_folder, "page.html")
    said("report", pid.to_s, "--workers", "--html", "-o", page)
    data = JSON.parse(File.read(page)[%r{<script type="application/json" id="data">(.*?)</script>}m, 1])
    expect(data["figures"].first.sum).to be >= 160 * 9_999
    expect(data["depth"].max).to be >= 2
    expect(data["frames"].map(&:last)).to include("leak", "order", "visit")
  end

  it "are in a page that is made of a file, and of a running process" do
    pid = start_program(SHOP).pid
    file, page = %w[report.json page.html].map { |name| File.join(socket_folder, name) }
    File.write(file, said("report", pid.to_s, "--json"))
    [file, pid.to_s].each do |word|
      said("report", word, "--html", "-o", page)
      text = File.read(page)
      expect(text).to start_with("<!DOCTYPE html>")
      expect(text[%r{<script type="application/json" id="data">(.*?)</script>}m, 1]).to include('"order"', '"visit"')
      File.delete(page)
    end
  end
end
