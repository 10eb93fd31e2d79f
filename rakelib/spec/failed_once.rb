# frozen_string_literal: true

require "fileutils"

# Which files are never repeated, and the file that keeps what failed once and passed when it ran again.
#
# For a hook of malloc, a failure that comes once in many runs is the main risk. So each is kept with its output, and
# nothing is repeated where a file has examples marked `:race`: there, it is what they look for.
module FailedOnce
  FILE = File.expand_path("../../tmp/failed_once.txt", __dir__)
  # Lines of a process's output that are kept.
  MOST_LINES = 400
  private_constant :MOST_LINES

  module_function

  # @param file [String] of specs, or the id of an example
  # @return [Boolean] whether it has examples that look for races
  def race?(file)
    path = file.sub(/\[[\d:,]+\]\z/, "")
    File.file?(path) && File.read(path).match?(/(?<!:):race\b|\brace: true/)
  end

  # Adds what failed to the file, which is never emptied: `rm` it when all in it has been looked at.
  #
  # @param names [Array<String>] of examples
  # @param text [String] of the process in which they failed
  def note(names, text, file: FILE)
    FileUtils.mkdir_p(File.dirname(file))
    lines = ["#{Time.now.utc.strftime('%F %T UTC')}, failed once:", *names.map { |name| "  #{name}" },
             *text.lines.last(MOST_LINES).map { |line| "    #{line.chomp}".rstrip }, ""]
    File.open(file, "a") { |out| out.write("#{lines.join("\n")}\n") }
  end
end
