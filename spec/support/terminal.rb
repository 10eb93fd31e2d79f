# frozen_string_literal: true

require "io/console"
require "pty"
require "rbconfig"
require_relative "subprocess"

# A program in a terminal of its own: what it draws becomes a screen, as far as full-screen programs need one.
# Everything has a deadline, and the program is killed in the end.
class Terminal
  DEADLINE_SECONDS = 300

  # @yieldparam terminal [Terminal]
  def self.open(*command, columns: 100, rows: 30, env: {})
    terminal = new(command, columns, rows, env)
    yield terminal
  ensure
    terminal&.close
  end

  # Everything that was written, escape sequences included.
  attr_reader :raw

  # The shell tells the program's status, and whether the terminal is as it was before.
  SHELL = 'before=$(stty -g); "$@"; status=$?; test "$(stty -g)" = "$before" && as=before || as=changed; ' \
          'echo "status $status, terminal as $as"'
  private_constant :SHELL

  def initialize(command, columns, rows, env)
    @raw = +""
    @parsed = 0
    @row = @column = 0
    @env = Subprocess.bare_env.merge("TERM" => "xterm-256color", "NO_COLOR" => nil).merge(env)
    clear
    # The size is set before the program looks.
    size = "stty cols #{columns} rows #{rows}; "
    @reader, @writer, @pid = PTY.spawn(@env, "sh", "-c", size + SHELL, "-", *command)
  end

  # @return [String] rows of text
  def screen
    read
    @cells.map { |row| row.map { |cell| cell || " " }.join.rstrip }.join("\n").rstrip
  end

  def type(keys) = @writer.write(keys)

  def resize(columns, rows)
    clear
    @writer.winsize = [rows, columns]
  end

  # @param what [String, Regexp] what the screen must show
  def wait_for(what)
    deadline = now + DEADLINE_SECONDS
    until shows?(what)
      raise "#{what.inspect} was not shown within #{DEADLINE_SECONDS} s:\n#{screen}" if now > deadline

      sleep 0.02
    end
    self
  end

  def shows?(what) = what.is_a?(Regexp) ? what.match?(screen) : screen.include?(what)

  # The program itself, below the shell.
  def program_pid
    File.read("/proc/#{@pid}/task/#{@pid}/children").split.first.to_i
  end

  def close
    [program_pid, @pid].each { |pid| Process.kill(:KILL, pid) if pid.positive? }
  rescue SystemCallError
    nil
  ensure
    [@reader, @writer].each(&:close)
    reap
  end

  private

  def reap
    deadline = now + DEADLINE_SECONDS
    until Process.wait(@pid, Process::WNOHANG)
      raise "process #{@pid} does not end" if now > deadline

      Process.kill(:KILL, @pid)
      sleep 0.02
    end
  rescue Errno::ECHILD
    nil
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def clear = @cells = Array.new(200) { [] }

  def read
    loop { @raw << @reader.read_nonblock(65_536).force_encoding(Encoding::UTF_8) }
  rescue IO::WaitReadable, EOFError, Errno::EIO
    draw
  end

  SEQUENCE = /\e\[(?<row>\d+);(?<column>\d+)H | \e\[(?<clear>2?J) | \e\[[\d;?<>=]*[a-zA-Z] | \e[()][A-Z0-9] |
              \e[=>78] | \r | \n | [^\e]/x
  private_constant :SEQUENCE

  # An incomplete sequence waits for its end.
  def draw
    text = @raw.byteslice(@parsed..).scrub("")
    consumed = text[/\A.*(?=\e[^a-zA-Z]*\z)/m] || text
    @parsed += consumed.bytesize
    consumed.scan(SEQUENCE) { step(Regexp.last_match) }
  end

  def step(match)
    if match[:row] then @row, @column = match[:row].to_i - 1, match[:column].to_i - 1
    elsif match[:clear] then clear
    elsif match[0] == "\r" then @column = 0
    elsif match[0] == "\n" then @row += 1
    elsif !match[0].start_with?("\e")
      @cells[@row % @cells.size][@column] = match[0]
      @column += 1
    end
  end
end
