# frozen_string_literal: true

ENV["RAILS_ENV"] = "production"
require "logger"
require "rails"
require "action_controller/railtie"
require "rack/mock"

# As small as an application can be, and with eager loading.
class Application < Rails::Application
  config.root = __dir__
  config.eager_load = true
  config.secret_key_base = "x" * 64
  config.logger = Logger.new(File::NULL)
  config.hosts.clear
  routes.append { get "/hello/:name", to: "hello#show" }
end

class HelloController < ActionController::Base
  def show
    render json: { name: params[:name], list: Array.new(200) { |i| "line #{i}" } }
  end
end

Application.initialize!
30.times do |i|
  status, headers, body = Application.call(Rack::MockRequest.env_for("/hello/visitor#{i}"))
  text = +""
  body.each { |part| text << part }
  puts [status, headers["Content-Type"] || headers["content-type"], text.size, text[0, 20]].inspect if (i % 10).zero?
  body.close if body.respond_to?(:close)
end
puts Application.routes.routes.map(&:path).map { |path| path.spec.to_s }.grep(/hello/)
