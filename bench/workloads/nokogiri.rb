# frozen_string_literal: true

require "nokogiri"

items = Array.new(150) do |i|
  "<li class='item #{i.odd? ? "odd" : "even"}' id='i#{i}'>" \
    "<a href='/items/#{i}'>Item #{i}</a><p>Some <b>text</b> on it.</p></li>"
end
html = "<html><body><h1>Catalogue</h1><ul>#{items.join}</ul></body></html>"
bytes = 0
Program.rounds(700) do |i|
  page = Nokogiri::HTML(html)
  page.css("li.odd a").each { |link| link["title"] = link.text }
  page.xpath("//p[b]").each { |paragraph| paragraph.content = "replaced #{i}" }
  bytes += page.to_html.bytesize
end
Program.result = bytes
