# frozen_string_literal: true

# Writes manual.md and manual.adoc, which kramdown and asciidoctor are run on.
words = File.read(__FILE__).scan(/\w+/)
section = lambda do |i, heading, code|
  text = Array.new(60) { |w| words[(i * 7 + w * 3) % words.size] }.join(" ")
  "#{heading} Section #{i}\n\n#{text}, *strong* and `code`.\n\n* one\n* two\n\n#{code[i]}\n"
end
File.write(File.join(__dir__, "manual.md"),
           Array.new(40) { |i| section[i, "##", ->(n) { "    indented #{n}\n\n| a | b |\n|---|---|\n| #{n} | x |\n" }] }.join)
File.write(File.join(__dir__, "manual.adoc"),
           "= Manual\n\n" + Array.new(40) { |i| section[i, "==", ->(n) { "----\nlisting #{n}\n----\n\n|===\n|a |b\n\n|#{n} |x\n|===\n" }] }.join)
