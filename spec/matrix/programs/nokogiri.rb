# frozen_string_literal: true

require "nokogiri"

xml = "<list>#{Array.new(2000) { |i| "<item n='#{i}'><b>text #{i}</b> tail</item>" }.join}</list>"
document = Nokogiri::XML(xml)
puts document.xpath("//item[@n mod 500 = 0]/b").map(&:text)
document.css("item").each { |item| item["seen"] = "yes" if item["n"].to_i.even? }
document.css("item:nth-child(3n)").remove
puts document.to_xml.size, document.css("[seen]").size
html = Nokogiri::HTML("<p>un<b>closed <i>tags" * 300)
puts html.to_html.size, html.errors.size.positive?
sheet = Nokogiri::XSLT(<<~XSLT)
  <xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:output method="text"/>
    <xsl:template match="/"><xsl:value-of select="count(//item)"/></xsl:template></xsl:stylesheet>
XSLT
puts sheet.transform(document).text
puts Nokogiri::XML::SAX::Parser.new(Class.new(Nokogiri::XML::SAX::Document) do
  def start_element(name, _attributes = []) = (@seen ||= Hash.new(0))[name] += 1
  def end_document = puts(@seen.sort.inspect)
end.new).parse(xml).class
20.times { Nokogiri::XML(xml) }
GC.start
puts "done"
