# frozen_string_literal: true

# Visits one path of the shop, 100 times to warm up and 200 times to leak, and saves a snapshot before and after those.
#
#   ruby examples/leaks/visit.rb search
require "fileutils"
require "memintro/rack"
require_relative "shop"

page = ARGV.fetch(0, "search")
shop = Memintro::Middleware.new(Shop.new, one_in: 100, fields: %i[path malloc_bytes rss_bytes])
visit = ->(name) { shop.call({ "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/#{page}/#{name}" }) }

Memintro.start
FileUtils.mkdir_p("tmp/leaks")
100.times { |i| visit["early-#{i}"] }
Memintro.snapshot(:all) # the first one loads code: what that leaves behind is collected before the one that counts
GC.start
Memintro.snapshot(:all).save("tmp/leaks/#{page}.before.json")
200.times { |i| visit["late-#{i}"] }
GC.start
Memintro.snapshot(:all).save("tmp/leaks/#{page}.after.json")
puts "saved tmp/leaks/#{page}.before.json and tmp/leaks/#{page}.after.json"
