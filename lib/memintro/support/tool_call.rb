# frozen_string_literal: true

require_relative "paths"

module Memintro
  # A run of `memintro-tool` whose answer is waited for. It ends with the wait: if that is interrupted, so is the tool.
  # @api private
  module ToolCall
    # @param arguments [Array<String>]
    # @return [Array(String, String, Process::Status)] its output, its errors, and its status
    # @raise [SystemCallError] if it cannot be started
    def self.capture(*arguments)
      pipes = Array.new(2) { IO.pipe(binmode: true) }
      streams = { in: File::NULL, out: pipes[0][1], err: pipes[1][1] }
      pid = Process.spawn({ "LD_PRELOAD" => nil }, Paths.tool, *arguments, streams)
      readers = pipes.map do |from, to|
        to.close
        Thread.new { from.read }.tap { |reader| reader.report_on_exception = false }
      end
      texts = readers.map(&:value)
      status = Process.wait2(pid).last
      pid = nil
      [*texts, status]
    ensure
      finish(pid) if pid
      readers&.each(&:kill)
      pipes&.flatten&.each(&:close)
    end

    def self.finish(pid)
      Process.kill(:KILL, pid)
      Process.wait(pid)
    rescue SystemCallError
      nil # it has ended, and somebody has taken note of that
    end
    private_class_method :finish
  end
end
