# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"

# memintro/railtie in an application as Debian's `rails new` makes it: Bundler, Active Record on SQLite, a scaffold, and
# a Puma with two workers. rails_spec.rb has each setting, in an application of one file.
RSpec.describe "memintro/railtie in a generated application" do
  around { |example| Dir.mktmpdir("memintro-rails") { |folder| @folder = folder and example.run } }

  before { skip PumaServer.missing if PumaServer.missing }

  def root = File.join(@folder, "blog")

  def env
    { "RAILS_ENV" => "production", "SECRET_KEY_BASE" => "0" * 64, "RAILS_LOG_TO_STDOUT" => "1",
      "BUNDLE_GEMFILE" => gemfile }
  end

  def gemfile = File.join(root, "Gemfile")

  # Whatever hinders Rails from making an application is not ours.
  def must(*command, chdir: root, env: self.env)
    result = run_command(*command, env: env, chdir: chdir)
    return result.stdout if result.success?

    skip "no application can be made here: #{command.last(3).join(' ')}: #{(result.stderr + result.stdout).lines.first}"
  end

  def rails(*words) = [RbConfig.ruby, "bin/rails", *words]

  def generate
    found = run_command("which", "rails")
    skip "no Rails here (Debian's ruby-railties)" unless found.success?

    outside = { chdir: @folder, env: {} }
    program = [RbConfig.ruby, found.stdout.chomp]
    assets = must(*program, "--version", **outside)[/\d+/].to_i < 7 ? "sprockets" : "asset-pipeline"
    without = %W[bundle git javascript bootsnap test #{assets}].map { |part| "--skip-#{part}" }
    must(*program, "new", "blog", "--minimal", *without, **outside)
    File.write(gemfile, "%w[railties activerecord actionview actionpack sqlite3 puma].each { |name| gem name }\n")
    { "initializers/plain.rb" => "Rails.application.config.force_ssl = false\n",
      "database.yml" => "production: { adapter: sqlite3, database: db/production.sqlite3 }\n" }
      .each { |file, text| File.write(File.join(root, "config", file), text) }
    [%w[bundle install --local], rails("generate", "scaffold", "Post", "title:string", "body:text"),
     rails("db:migrate")].each { |command| must(*command) }
  end

  # As in README.md.
  def add_memintro
    File.write(gemfile, "gem 'memintro', path: #{Subprocess::ROOT.dump}, require: 'memintro/railtie'\n", mode: "a")
    application = File.join(root, "config", "application.rb")
    started = File.read(application).sub(/^ *config\.load_defaults .*\n/) { "#{_1}    config.memintro.start = true\n" }
    File.write(application, started)
    run_command("bundle", "install", "--local", env: env, chdir: root).must_succeed
  end

  it "stands outermost, and logs what each request of each worker took" do
    generate
    add_memintro
    stack = run_command(*rails("middleware"), env: env, chdir: root).must_succeed.stdout.lines.grep(/^use /)
    expect(stack.first).to eq("use Memintro::Middleware\n")
    config = "plugin :memintro\npreload_app!\n"
    PumaServer.run(File.join(root, "config.ru"), config: config, env: env.merge("MEMINTRO_PUMA_EVERY" => "0.3"),
                                                 arguments: ["-w", "2", "-t", "2:2"]) do |server|
      { "/posts" => "index", "/posts/new" => "new" }.each do |path, action|
        answer = server.get(path)
        expect(answer.code).to eq("200"), server.log
        line = server.wait("log #{path}") { server.lines.find { |text| text.include?("path=#{path} ") } }
        expect(line).to match(/ status=200 .* request_id=#{answer["x-request-id"]} action=posts##{action}(?: time=|\z)/)
        expect(line[/ malloc_bytes=(\d+) malloc_calls=\d+ process_objects=/, 1].to_i).to be > 50_000
      end
      total = server.wait("report two workers") { server.lines.grep(/process=total .* workers=2 /).last }
      rss, pss = %w[rss pss].map { |name| total[/#{name}_bytes=(\d+)/, 1].to_i }
      expect(pss).to be_between(20_000_000, rss - 20_000_000)
    end
  end
end
