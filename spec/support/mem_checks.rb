# frozen_string_literal: true

require "fileutils"
require "json"
require "tmpdir"
require_relative "native_programs"
require_relative "subprocess"

# Runs the task of spec/fixtures/mem_check with a real rake, in a copy of that folder with the extension in its lib.
module MemChecks
  FOLDER = File.join(Subprocess::ROOT, "spec", "fixtures", "mem_check")
  # A library whose allocations are to be somebody else's.
  PLANTED = "planted.c"

  # The output of a check, and the folder in which it ran.
  Told = Struct.new(:text, :out, :status, :folder) do
    def first = text[/^mem_check: .*/]

    # The first line of each finding.
    def titles = text.scan(/^\d+\. (.*)/).flatten

    def read(file) = File.read(File.join(folder, file))
  end

  # @yield in the folder, before the task runs
  # @return [Told]
  def mem_check(task = "mem_check", settings: {}, env: {}, deadline_seconds: Subprocess::DEADLINE_SECONDS)
    @mem_check_folder ||= Dir.mktmpdir("memintro-mem-check-").tap { |folder| prepare(folder) }
    yield @mem_check_folder if block_given?
    env = { "MT_NO_PLUGINS" => "1", "SETTINGS" => settings.inspect, "GITHUB_ACTIONS" => nil, **env }
    command = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-S", "rake", task]
    options = { chdir: @mem_check_folder, deadline_seconds: deadline_seconds, env: env }
    result = run_command(*command, way: :live, **options)
    status = result.status.exitstatus || result.status.termsig
    Told.new(result.stderr.scrub, result.stdout.scrub, status, @mem_check_folder)
  end

  def prepare(folder)
    FileUtils.cp_r("#{FOLDER}/.", folder)
    FileUtils.mkdir_p(File.join(folder, "lib"))
    FileUtils.cp(extension(PLANTED), File.join(folder, "lib"))
  end

  # A test file of this text.
  def test_of(folder, text)
    File.write(File.join(folder, "test", "own_test.rb"), "require \"minitest/autorun\"\nrequire \"planted\"\n#{text}\n")
  end
end

if defined?(RSpec)
  RSpec.configure do |config|
    config.include MemChecks
    config.after { FileUtils.rm_rf(@mem_check_folder) if @mem_check_folder }
  end
end
