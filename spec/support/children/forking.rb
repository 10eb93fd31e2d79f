# frozen_string_literal: true

# The Ruby of spec/support/one_ruby.rb: runs each program that standard input gives in a child of its own, and answers
# how that has ended. It is no `-e`, so that no line of its own has the name of a program's.
require "json"

$stdout.sync = true
while (line = $stdin.gets)
  program = JSON.parse(line)
  pid = fork do
    $stdin.reopen(File::NULL)
    $stdout.reopen(program["out"], "w")
    $stderr.reopen(program["err"], "w")
    $stdout.sync = false
    Dir.chdir(program["folder"]) if program["folder"]
    ENV.update(program["env"])
    ARGV.replace(program["arguments"])
    $PROGRAM_NAME = "-e"
    TOPLEVEL_BINDING.eval(program["code"], "-e", 1)
  end
  status = Process.wait2(pid).last
  puts JSON.generate([status.exitstatus, status.termsig])
end
