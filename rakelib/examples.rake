# frozen_string_literal: true

# The command in an example's first lines, or else plain Ruby.
def told_command(example)
  pattern = %r{\b((?:exe/memintro|ruby) .*#{Regexp.escape(example)}\b.*)}
  File.foreach(example).first(5).filter_map { |line| line[pattern, 1] }.first || "ruby -Ilib #{example}"
end

# An example that serves until it is ended is run by the spec of the chapter that uses it.
def ends_by_itself?(example) = File.foreach(example).first(5).none?(/until it is ended/)

desc "Run every example as it tells"
task examples: :compile do
  FileList["examples/*.rb"].sort.each { |example| sh told_command(example) if ends_by_itself?(example) }
end
