# frozen_string_literal: true

# A Rails application answers requests, called as a server would, but by one thread and without sockets: routes, a
# session, helpers, a page with a partial for each row, and JSON.
ENV["RAILS_ENV"] = "production"
require "rails"
require "action_controller/railtie"
require "action_view/testing/resolvers"

class Shop < Rails::Application
  config.root = __dir__
  config.eager_load = true
  config.cache_classes = true
  config.action_view.cache_template_loading = true
  config.secret_key_base = "0" * 64
  config.consider_all_requests_local = false
  config.logger = Logger.new(File::NULL)
  config.hosts.clear
end

Product = Struct.new(:id, :name, :price, :tags) do
  def to_param = id.to_s
end
PRODUCTS = Array.new(2_000) { |i| Product.new(i, "Product <#{i}>", i * 13 % 997, %w[new sale rare].first(i % 4)) }

# Templates are in memory, so that one file is the application.
class ProductsController < ActionController::Base
  prepend_view_path ActionView::FixtureResolver.new(
    "layouts/application.html.erb" => "<html><title><%= @title %></title><body><%= yield %></body></html>",
    "products/index.html.erb" => <<~ERB,
      <h1><%= pluralize(@products.size, "product") %></h1>
      <ul><%= render partial: "products/row", collection: @products, as: :product %></ul>
    ERB
    "products/_row.html.erb" => <<~ERB
      <li class="<%= class_names(cheap: product.price < 100) %>">
        <%= link_to product.name, product_path(product) %> <%= number_to_currency(product.price) %>
        <%= safe_join(product.tags.map { |tag| content_tag(:b, tag) }, ", ") %>
      </li>
    ERB
  )
  layout "application"

  def index
    @title = "Page #{params[:page]}"
    session[:seen] = params[:page]
    @products = PRODUCTS[params[:page].to_i * 20 % PRODUCTS.size, 20]
  end

  def show
    product = PRODUCTS.fetch(params[:id].to_i)
    render json: { product: product.to_h, near: PRODUCTS[product.id / 10 * 10, 10].map(&:to_h) }
  end
end

Shop.initialize!
Shop.routes.draw { resources :products, only: %i[index show] }

client = Rack::MockRequest.new(Shop)
bytes = 0
Program.rounds(600) do |i|
  bytes += client.get("/products?page=#{i}", "HTTP_HOST" => "localhost").body.bytesize
  2.times { |k| bytes += client.get("/products/#{(i + k) % 2_000}", "HTTP_HOST" => "localhost").body.bytesize }
end
Program.result = bytes
