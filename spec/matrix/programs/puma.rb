# frozen_string_literal: true

# Starts Puma with 4 workers, asks it 400 times over 4 connections, stops it, and prints what came back. With
# PUMA_PSS=file it leaves there the PSS of the workers in kB, and what tracking has seen in each that answered and in each
# of 1,000 strings that it made when it began.
require "json"
require "net/http"
require "socket"
require "tmpdir"

CONFIGURATION = <<~'RUBY'
  workers 4
  threads 2, 2
  preload_app!
  on_worker_boot do
    seen = -> { defined?(Memintro) && Memintro.tracking? ? Memintro.thread_totals.allocations : 0 }
    before = seen.call
    Array.new(1000) { |i| "string #{i}".ljust(700) }
    File.write(File.join(ENV.fetch("PUMA_FOLDER"), "worker.#{Process.pid}"), (seen.call - before).to_s)
  end
  app do |env|
    number = env["PATH_INFO"][/\d+/].to_i
    body = Array.new(100) { |i| "#{number}: line #{i}\n" }.join
    headers = { "content-type" => "text/plain", "x-worker" => Process.pid.to_s,
                "x-tracked" => (defined?(Memintro) && Memintro.tracking? ? Memintro.thread_totals.allocations : 0).to_s }
    [200, headers, [body]]
  end
RUBY

def wait_for(port)
  600.times do
    return if TCPSocket.new("127.0.0.1", port).close.nil?
  rescue SystemCallError
    sleep 0.05
  end
  abort "Puma does not answer"
end

def ask(port, numbers)
  Net::HTTP.start("127.0.0.1", port) do |http|
    numbers.map do |number|
      answer = http.get("/#{number}")
      [answer.code, answer.body.size, answer.body.lines.first, answer["x-worker"].to_i, answer["x-tracked"].to_i]
    end
  end
end

def pss_kb(pid) = File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+)/, 1].to_i

Dir.mktmpdir do |folder|
  File.write(File.join(folder, "puma.rb"), CONFIGURATION)
  port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  pid = spawn({ "PUMA_FOLDER" => folder }, RbConfig.ruby, "-S", "puma", "-q", "-C", File.join(folder, "puma.rb"), "-b", "tcp://127.0.0.1:#{port}",
              out: File.join(folder, "log"), err: %i[child out])
  wait_for(port)
  sleep 0.1 while File.read(File.join(folder, "log")).scan(/Worker \d .*booted/).size < 4
  threads = Array.new(4) { |t| Thread.new { Array.new(10) { |n| ask(port, (0...10).map { |i| (t * 100) + (n * 10) + i }) }.flatten(1) } }
  answers = threads.flat_map(&:value)
  workers = Dir["/proc/[0-9]*/stat"].filter_map do |file|
    File.read(file).then { |stat| file[/\d+/].to_i if stat[/\) \S (\d+)/, 1].to_i == pid }
  rescue SystemCallError
    nil
  end
  if ENV["PUMA_PSS"]
    tracked = answers.group_by { |answer| answer[3] }.values.map { |of_one| of_one.map(&:last).max }
    booting = Dir[File.join(folder, "worker.*")].map { |file| File.read(file).to_i }
    File.write(ENV["PUMA_PSS"], JSON.generate(pss_kb: workers.sum { |worker| pss_kb(worker) }, tracked: tracked, booting: booting))
  end
  Process.kill(:TERM, pid)
  status = Process.wait2(pid).last
  puts answers.map { |code, size, first, *| [code, size, first] }.uniq.size, answers.map(&:first).tally.inspect
  puts workers.size, (answers.map { |answer| answer[3] }.uniq - workers).size
  puts status.exitstatus.inspect, status.termsig.inspect
end
