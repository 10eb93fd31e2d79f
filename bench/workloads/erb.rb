# frozen_string_literal: true

require "erb"

PAGE = <<~HTML
  <html><head><title><%= title %></title></head><body><table>
  <% rows.each do |row| %>
    <tr class="<%= row[:id].odd? ? "odd" : "even" %>"><td><%= row[:id] %></td>
    <td><%= ERB::Util.html_escape(row[:name]) %></td><td><%= format("%.2f", row[:price]) %></td></tr>
  <% end %>
  </table></body></html>
HTML

rows = Array.new(100) { |i| { id: i, name: "Tea & <biscuits>, selection number #{i}", price: i * 1.1 } }
bytes = 0
page = ERB.new(PAGE)
Program.rounds(4_500) do |i|
  page = ERB.new(PAGE) if (i % 10).zero?
  bytes += page.result_with_hash(title: "Price list #{i}", rows: rows).bytesize
end
Program.result = bytes
