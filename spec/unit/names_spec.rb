# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/support/names"

RSpec.describe Memintro::Names do
  include_context "with a fake native"

  def short(path, line = 7, app_root: "/srv/app")
    described_class.new(app_root).short(Memintro::CallSite.new([3, :ruby, path, line, *[0] * 7]))
  end

  {
    "/srv/app/app/models/user.rb" => "app/models/user.rb:7",
    "/srv/application.rb" => "/srv/application.rb:7",
    "/var/lib/gems/3.1.0/gems/nokogiri-1.13.10/lib/nokogiri.rb" => "nokogiri-1.13.10/lib/nokogiri.rb:7",
    "/srv/app/vendor/bundle/ruby/3.1.0/gems/rack-2.2.4/lib/rack.rb" => "rack-2.2.4/lib/rack.rb:7",
    "/home/me/.bundle/ruby/3.1.0/bundler/gems/rails-1a2b3c/lib/x.rb" => "rails-1a2b3c/lib/x.rb:7",
    "/usr/lib/ruby/3.1.0/json/common.rb" => "ruby/3.1.0/json/common.rb:7",
    "/usr/lib/ruby/vendor_ruby/rack.rb" => "ruby/vendor_ruby/rack.rb:7",
    "(eval)" => "(eval):7",
    "<internal:/usr/lib/ruby/vendor_ruby/rubygems/core_ext/kernel_require.rb>" =>
      "<internal:ruby/vendor_ruby/rubygems/core_ext/kernel_require.rb>:7",
    "<internal:gc>" => "<internal:gc>:7"
  }.each do |path, shown|
    it("shows #{path} as #{shown}") { expect(short(path)).to eq(shown) }
  end

  it "shows an end of the name, by which the site is found again" do
    native.rows = [[3, :ruby, "/var/lib/gems/3.1.0/gems/nokogiri-1.13.10/lib/nokogiri.rb", 7, *[1] * 7]]
    expect(Memintro[short(native.rows[0][2])]).to eq(Memintro.top(1).first)
  end

  it "takes the current folder as the application's where none is given" do
    expect(short(File.join(Dir.pwd, "a.rb"), app_root: nil)).to eq("a.rb:7")
  end

  it "cuts names of 10 kB at the front, where they tell least" do
    shown = short("/x/#{'y' * 10_000}/leak.rb")
    expect(shown.size).to eq(described_class::WIDEST)
    expect(shown).to start_with("...yyy").and end_with("y/leak.rb:7")
  end

  it "writes bytes that are not UTF-8, and control characters, as numbers" do
    expect(short("/tmp/\xFFé\e[31m\n.rb".b)).to eq("/tmp/\\xFFé\\x1B[31m\\x0A.rb:7")
  end
end
