# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require_relative "../../lib/memintro"

# `memintro snapshot`, `iseqs`, `histogram` and `diff` of several running processes: a master and its workers.
RSpec.describe "looking into a master and its workers", :listening do
  # Worker i has 100 · (i + 1) grains, the master 10. ARGV: what each worker runs.
  MILL = <<~RUBY
    class Grain; end
    Memintro.listen(name: "mill")
    $0 = "mill: master"
    kept = Array.new(10) { Grain.new }
    4.times do |i|
      fork do
        kept.concat(Array.new((100 * (i + 1)) - 10) { Grain.new })
        Object.class_eval("def worker_\#{i}; end", "worker_\#{i}.rb", 1)
        worker = i
        $0 = "mill: worker \#{i}"
        eval(ARGV[0] || "sleep", binding)
      end
    end
    puts :ready
    sleep
  RUBY
  GROWING = "loop { sleep 0.01; kept << Grain.new }"
  # Ends where a diff collects its garbage before its second look.
  MORTAL = <<~RUBY
    $looks = 0
    GC.singleton_class.prepend(Module.new { def start(...) = ($looks += 1) > 1 ? exit!(0) : super }) if worker == 3
    sleep
  RUBY

  def start_mill(*arguments)
    @master = start_program(MILL, *arguments).pid
    eventually do
      listed = memintro("ps", "--json").stdout.lines.map { |line| JSON.parse(line) }
      @pids = listed.to_h { |row| [row["program"], row["pid"]] }
      @pids.keys.grep(/\Amill: (?:worker \d|master)\z/).size == 5
    end
  end

  def worker(number) = @pids.fetch("mill: worker #{number}")

  def headings
    { @master => "master", **Array.new(4) { |i| [worker(i), "worker #{i}"] }.sort.to_h }
      .map { |pid, name| "process #{pid} (mill: #{name}):\n" }
  end

  # Each process's part of the output, by process id.
  def parts(text)
    pieces = text.split(/^process (\d+) \(.*\):\n/)
    expect(pieces.shift).to eq("")
    pieces.each_slice(2).to_h { |pid, part| [pid.to_i, part] }
  end

  def said(*arguments) = memintro(*arguments).must_succeed.tap { |it| expect(it.stderr).to eq("") }.stdout

  def lines(*arguments) = said(*arguments).lines.map { |line| JSON.parse(line) }

  def grains(document)
    rows = document["rows"] || document["classes"]
    rows.find { |row| row["name"] == "Grain" }.fetch("count")
  end

  def expected_grains
    { @master => 10, **Array.new(4) { |i| [worker(i), 100 * (i + 1)] }.to_h }
  end

  def file(name) = File.join(socket_folder, name)

  def saved = Dir.children(socket_folder).reject { |name| name.end_with?(".sock") }.sort

  it "shows a histogram for each, under its name, the master first" do
    start_mill
    text = said("histogram", "mill", "--workers", "--top", "all")
    expect(text.scan(/^process \d.*\n/)).to eq(headings)
    expect(text.scan(/^\n(?=process)/).size).to eq(4)
    expect(parts(text).transform_values { |part| part[/(\S+)  Grain$/, 1].to_i }).to eq(expected_grains)
    expect(lines("histogram", @master, "--workers", "--json").to_h { |one| [one["pid"], grains(one)] })
      .to eq(expected_grains)
    # For two processes, both; for one, its answer without a heading.
    expect(parts(said("histogram", worker(1), worker(0), "--top", "all")).keys).to eq([worker(1), worker(0)])
    expect(said("histogram", worker(2), "--top", "1")).to match(/\A[\d,]+ objects, .* by class:\n/)
    one = JSON.parse(said("histogram", worker(2), "--json"))
    expect([one["pid"], grains(one)]).to eq([worker(2), 300])
  end

  it "shows instruction sequences of each, in one file or in one for each" do
    start_mill
    all = lines("iseqs", "mill", "--workers", "--json")
    expect(all.to_h { |one| [one["pid"], one["rows"].filter_map { |row| row["name"][/\Aworker_\d\.rb\z/] }] })
      .to eq(@master => [], **Array.new(4) { |i| [worker(i), ["worker_#{i}.rb"]] }.to_h)
    said("iseqs", "mill", "--workers", "-o", file("all.txt"), "--top", "1")
    expect(File.read(file("all.txt")).scan(/^process \d.*\n/)).to eq(headings)
    said("iseqs", "mill", "--workers", "-o", file("i.%p.txt"), "--by", "location", "--top", "all")
    expect(saved).to eq(["all.txt", *@pids.values.map { |pid| "i.#{pid}.txt" }.sort])
    expect(File.read(file("i.#{worker(3)}.txt"))).to match(/\A[\d,]+ instruction sequences.*  worker_3\.rb:1$/m)
  end

  it "saves a snapshot of each, and asks no process where one file cannot hold them" do
    start_mill
    refused = memintro("snapshot", "mill", "--workers", "-o", file("snap.json"))
    expect([refused.status.exitstatus, refused.stdout, refused.stderr])
      .to match([2, "", /several processes need several files: put %p, .* for example -o #{file("snap.%p.json")}$/])
    expect(saved).to eq([])
    expect(said("snapshot", "mill", "--workers", "-o", file("snap.%p.json"))).to eq("")
    expect(saved).to eq(@pids.values.map { |pid| "snap.#{pid}.json" }.sort)
    loaded = saved.map { |name| Memintro::Snapshot.load(file(name)) }
    expect(loaded.to_h { |one| [one.pid, one.classes.find { |row| row.name == "Grain" }.count] }).to eq(expected_grains)
    # One needs no %p, and may have it.
    said("snapshot", worker(0), "-o", file("one.json"))
    said("snapshot", worker(0), "-o", file("one.%n.%p.txt"), "--format", "text", "--parts", "none")
    expect(Memintro::Snapshot.load(file("one.json")).pid).to eq(worker(0))
    expect(File.read(file("one.1.#{worker(0)}.txt"))).to match(/\A#<Memintro::Snapshot \S+ pid #{worker(0)} /)
    expect(parts(said("snapshot", "mill", "--workers", "--parts", "types")).values)
      .to all(start_with("#<Memintro::Snapshot "))
    expect(lines("snapshot", "mill", "--workers", "--json", "--parts", "classes")
           .to_h { |one| [one.dig("process", "pid"), grains(one)] }).to eq(expected_grains)
  end

  it "waits once, and says of each what grew in it" do
    start_mill(GROWING)
    text = said("diff", "mill", "--workers", "--for", "1", "--top", "all")
    expect(text.scan(/^process \d.*\n/)).to eq(headings)
    found = parts(text)
    found.each { |pid, part| expect(part).to match(/\Amemintro \S+: what changed in [\d.]+ s, pid #{pid}, ruby/) }
    grown = found.transform_values { |part| part[/(\+[\d,]+) +\S+ \S+ +[\d,]+  Grain$/, 1].to_s.delete(",").to_i }
    expect(grown.delete(@master)).to eq(0)
    expect(grown.values).to all(be_between(1, 100_000))
    said("diff", worker(0), worker(1), "--for", "0.2", "--format", "html", "-o", file("d.%p.html"))
    expect(saved).to eq([worker(0), worker(1)].sort.map { |pid| "d.#{pid}.html" })
    saved.each { |name| expect(File.read(file(name))).to start_with("<!DOCTYPE html>").and include(name[/\d+/]) }
    all = lines("diff", "mill", "--workers", "--for", "0.2", "--json")
    expect(all.map { |one| one.dig("later", "process", "pid") }).to match_array(@pids.values)
  end

  it "shows the others where one is stopped, or is not there" do
    start_mill
    Process.kill(:STOP, worker(1))
    result = memintro("histogram", "mill", "--workers", "--top", "all", "--timeout", "10")
    expect(result.status.exitstatus).to eq(1)
    expect(result.stderr).to match(/\Amemintro: process #{worker(1)} did not answer within 10.0 s: it is stopped.*\n\z/)
    expect(parts(result.stdout).transform_values { |part| part[/(\S+)  Grain$/, 1].to_i })
      .to eq(expected_grains.except(worker(1)))
    Process.kill(:CONT, worker(1))
    gone = memintro("histogram", "999999999", worker(2), "--json")
    expect([gone.status.exitstatus, gone.stderr]).to eq([1, "memintro: there is no process 999999999\n"])
    expect(gone.stdout.lines.map { |line| grains(JSON.parse(line)) }).to eq([300])
    none = memintro("iseqs", "999999999", "999999998")
    expect([none.status.exitstatus, none.stdout]).to eq([1, ""])
    expect(none.stderr.lines.last).to eq("memintro: none of these 2 processes answered\n")
    # So it is with what is asked otherwise.
    marked = memintro("mark", "999999999", worker(2))
    expect([marked.status.exitstatus, marked.stderr]).to eq([1, "memintro: there is no process 999999999\n"])
    expect(marked.stdout).to start_with("process #{worker(2)} (mill: worker 2) counts growth from now on")
  end

  it "shows the others where one ends between the two looks" do
    start_mill(MORTAL)
    result = memintro("diff", "mill", "--workers", "--for", "0.2")
    expect([result.status.exitstatus, result.stderr])
      .to eq([0, "memintro: process #{worker(3)} has ended meanwhile, and is left out\n"])
    expect(parts(result.stdout).keys).to match_array(@pids.values - [worker(3)])
  end

  it "says in lines of JSON what each found out about itself" do
    start_mill
    found = lines("doctor", "mill", "--workers", "--json")
    expect(found.map { |one| one["pid"] }).to match_array(@pids.values)
    expect(found.map(&:keys)).to all(include("platform", "hook", "allocator"))
    expect(said("doctor", "mill", "--workers").scan(/^process \d.*\n/)).to eq(headings)
  end

  it "finds a Puma's workers, and what each of them keeps" do
    skip PumaServer.missing if PumaServer.missing
    File.write(file("shop.ru"), <<~RUBY)
      class Order; end
      kept = Array.new(7) { Order.new }
      run ->(env) { kept << Order.new if env["PATH_INFO"] == "/order"; [200, {}, ["hello"]] }
    RUBY
    config = "require 'memintro'\nworkers 4\nthreads 1, 1\npreload_app!\n"
    env = { "MEMINTRO_LISTEN" => "1", "MEMINTRO_SOCKET_FOLDER" => socket_folder }
    PumaServer.run(file("shop.ru"), config: config, env: env) do |server|
      eventually { sockets.size == 5 }
      20.times { expect(server.get("/order").code).to eq("200") }
      found = lines("histogram", server.pid, "--workers", "--json").to_h do |one|
        [one["pid"], one["rows"].find { |row| row["name"] == "Order" }.fetch("count")]
      end
      expect(found.keys).to match_array(sockets.map(&:to_i))
      expect(found[server.pid]).to eq(7)
      expect(found.except(server.pid).values.sum { |count| count - 7 }).to eq(20)
      expect(said("iseqs", "puma", "--workers", "--top", "1").scan(/^process \d.*\n/).size).to eq(5)
    end
  end

  describe "what makes no sense" do
    {
      %w[histogram --workers a.json] => "--workers needs the PID or NAME of a running process, and a.json is a file",
      %w[diff --workers mill a.json] => "--workers needs the PID or NAME of a running process, and a.json is a file",
      %w[iseqs --workers -- true] => "of a program that is started, all Ruby processes are looked at anyway",
      %w[snapshot --workers] => "give the PID or NAME of a process:",
      %w[diff --workers mill --format html] => "into the name of -o, for example -o diff.%p.html",
      %w[diff 1 2 --format html -o a/d.html] => "for example -o a/d.%p.html",
      %w[diff a.json b.json --for 3] => "--for needs PIDs or NAMEs of processes, and no files"
    }.each do |arguments, message|
      it "is said of: memintro #{arguments.join(' ')}" do
        result = memintro(*arguments)
        expect([result.status.exitstatus, result.stdout, result.stderr]).to match([2, "", include(message)])
      end
    end

    it "is reported before a diff waits: a missing folder" do
      result = memintro("diff", "mill", "--for", "600", "-o", "/nowhere/d.txt")
      expect([result.status.exitstatus, result.stderr]).to match([1, include("there is no folder /nowhere")])
    end
  end
end
