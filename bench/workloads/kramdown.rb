# frozen_string_literal: true

require "kramdown"

section = <<~MARKDOWN
  ## Heading with `code` in it

  A paragraph with *emphasis*, **strength**, a [link](http://example.org "title") and an ![image](picture.png).
  It goes on for a second line, and has a footnote of its own[^1].

  * first point
  * second point, with `inline code`
      1. nested one
      2. nested two

  | name  | bytes |
  |-------|------:|
  | table |   100 |
  | sites |    20 |

  > A quotation.

  ~~~ ruby
  puts "hello"
  ~~~

  [^1]: The note.

MARKDOWN
bytes = 0
Program.rounds(80) do
  bytes += Kramdown::Document.new(section * 10).to_html.bytesize
end
Program.result = bytes
