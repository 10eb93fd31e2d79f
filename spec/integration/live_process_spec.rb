# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# README's chapter "A live process", typed from its first command to its last.
RSpec.describe "README.md, A live process", :listening do
  CHAPTER = File.read(File.join(Subprocess::ROOT, "README.md"), encoding: "UTF-8")[/^## A live process$.*?(?=^## )/m]
  # Each command and what is shown to come of it.
  TYPED = CHAPTER.scan(/^```console\n(.*?)^```$/m).flatten.flat_map do |block|
    block.split(/^\$ /).drop(1).map { |text| text.split("\n", 2) }
  end

  # What must be the same with other numbers: words, and names of call sites in our example.
  def shape(text)
    number = /[+-]?[\d.,:TZ-]*\d[\d.,:TZ-]*|[KMG]?i?B\b|-/
    text.lines.reject { |line| line.strip.empty? }.map { |line| line.gsub(number, "").split }
  end

  def typed(command)
    env = listening_env("PATH" => "#{@bin}:#{ENV.fetch('PATH')}")
    run_command("sh", "-c", command, chdir: Subprocess::ROOT, env: env).must_succeed.stdout
  end

  around do |example|
    Dir.mktmpdir("memintro-bin") do |folder|
      @bin = folder
      File.symlink(Subprocess::EXE, File.join(folder, "memintro"))
      example.run
    end
  end

  it "shows what the commands print" do
    first, *rest = TYPED
    expect(first[0]).to eq("MEMINTRO_LISTEN=1 ruby -rmemintro examples/shop.rb &")
    start_program("load ARGV.first", File.join(Subprocess::ROOT, "examples", "shop.rb"),
                  env: { "MEMINTRO_LISTEN" => "1" }, chdir: Subprocess::ROOT, wait: false)
    eventually { sockets.size == 3 && typed("memintro ps").scan(/shop: (?:master|worker)/).size == 3 }
    rest.each do |command, shown|
      given = if command.start_with?("memintro top")
                # The workers must have worked for a while, and in growth there must be something to see.
                eventually { typed(command).then { |text| text if text.include?("examples/shop.rb:12") } }
              else
                typed(command)
              end
      next if shown.strip.empty?

      lines = shape(shown)
      words = lines.map(&:first).grep(/\A[[:alpha:]]{3,}/) - ["more"]
      expect(shape(given).map(&:first)).to include(*words), "#{command}\n#{given}"
      expect(shape(given).first).to eq(lines.first), "#{command}\n#{given}"
    end
  end
end
