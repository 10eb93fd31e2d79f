# frozen_string_literal: true

require "io/nonblock"
require "io/wait"
require "json"
require "tmpdir"

# A headless Chromium, driven through a pipe as its developer tools drive it. Its console output is kept.
class Chromium
  # Seconds for an answer, on a very busy machine.
  PATIENCE_SECONDS = 300
  FLAGS = %w[--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe
             --disable-background-networking --window-size=1200,800].freeze
  # Codes of keys that a page may be sent.
  CODES = { "Enter" => 13, "Escape" => 27, "ArrowLeft" => 37, "ArrowUp" => 38, "ArrowRight" => 39,
            "ArrowDown" => 40 }.freeze

  # @return [String, nil]
  def self.program
    ENV["PATH"].split(":").map { |folder| File.join(folder, "chromium") }.find { |path| File.executable?(path) }
  end

  # Errors, warnings and refusals that the page caused.
  attr_reader :complaints

  def initialize(folder)
    @replies, theirs_out = IO.pipe
    theirs_in, @commands = IO.pipe
    # Chromium takes a pipe that has nothing to read for one that has ended.
    [theirs_in, theirs_out].each { |pipe| pipe.nonblock = false }
    @pid = Process.spawn({ "HOME" => folder }, self.class.program, *FLAGS, "--user-data-dir=#{folder}/profile",
                         3 => theirs_in, 4 => theirs_out, out: File::NULL, err: File::NULL, pgroup: true)
    [theirs_in, theirs_out].each(&:close)
    @number = 0
    @buffer = +"".b
    @complaints = []
    attach
  end

  def close
    @commands.close
    Process.kill(:KILL, -@pid)
    Process.wait(@pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  def command(method, **params)
    @number += 1
    @commands.write(JSON.generate({ id: @number, method: method, params: params, sessionId: @session }.compact), "\0")
    loop do
      message = receive
      return message["result"] || raise("#{method}: #{message['error']}") if message["id"] == @number

      hear(message)
    end
  end

  def visit(file)
    @loaded = false
    command("Page.navigate", url: "file://#{file}")
    hear(receive) until @loaded
  end

  # @return [Object] the value of an expression in the page
  def value(expression)
    found = command("Runtime.evaluate", expression: expression, returnByValue: true, awaitPromise: true)
    raise found["exceptionDetails"].to_s if found["exceptionDetails"]

    found["result"]["value"]
  end

  def key(name)
    text = name.size == 1 ? { text: name } : {}
    text = { text: "\r" } if name == "Enter"
    %w[keyDown keyUp].each do |type|
      command("Input.dispatchKeyEvent", type: type, key: name, windowsVirtualKeyCode: CODES.fetch(name, 0),
                                        **(type == "keyDown" ? text : {}))
    end
  end

  def click(horizontal, vertical)
    at = { x: horizontal, y: vertical, button: "left", clickCount: 1 }
    command("Input.dispatchMouseEvent", type: "mouseMoved", **at, button: "none")
    %w[mousePressed mouseReleased].each { |type| command("Input.dispatchMouseEvent", type: type, **at) }
  end

  def screenshot(file)
    File.binwrite(file, command("Page.captureScreenshot")["data"].unpack1("m"))
  end

  private

  def attach
    target = command("Target.createTarget", url: "about:blank")["targetId"]
    @session = command("Target.attachToTarget", targetId: target, flatten: true)["sessionId"]
    %w[Page Runtime Log Network].each { |domain| command("#{domain}.enable") }
  end

  def receive
    due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
    until (at = @buffer.index("\0"))
      left = due - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      raise "no answer of Chromium" unless left.positive? && @replies.wait_readable(left)

      @buffer << @replies.readpartial(1 << 20)
    end
    JSON.parse(@buffer.slice!(0..at).chop)
  end

  def hear(message)
    case message["method"]
    when "Page.loadEventFired" then @loaded = true
    when "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"
      @complaints << message["params"].to_s
    when "Network.requestWillBeSent"
      url = message.dig("params", "request", "url")
      @complaints << "asked for #{url[0, 200]}" unless url.start_with?("file:///", "data:")
    end
  end
end
