# frozen_string_literal: true

# A master with two workers, for looking at from outside until it is ended. Each worker handles requests; its page cache
# is never emptied.
#
#   MEMINTRO_LISTEN=1 ruby -rmemintro examples/shop.rb
$PROGRAM_NAME = "shop: master"

CACHE = {}

def handle(request)
  page = "page #{request} " * 400
  CACHE["/articles/#{request}"] = page.dup
  page.upcase
end

workers = Array.new(2) do |number|
  fork do
    $PROGRAM_NAME = "shop: worker #{number}"
    (1..).each do |request|
      handle(request)
      sleep(0.005)
    end
  end
end

Signal.trap("TERM") do
  workers.each { |pid| Process.kill("TERM", pid) }
  exit
end
Process.waitall
