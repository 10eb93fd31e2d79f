# frozen_string_literal: true

require_relative "events"
require_relative "reports"
require_relative "search"
require_relative "thumbnails"

# A web application that leaks in four ways, one for each path. README.md beside this file finds them.
class Shop
  def call(env)
    _, path, argument = env["PATH_INFO"].split("/")
    body = case path
           when "thumbnails" then Thumbnails.draw(argument)
           when "reports" then Reports.render(argument)
           when "search" then Search.find(argument).map(&:title).join("\n")
           when "upload" then Events.upload(argument)
           else "thumbnails, reports, search, upload\n"
           end
    [200, { "content-type" => "text/plain" }, [body]]
  end
end
