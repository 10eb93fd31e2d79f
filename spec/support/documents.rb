# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "subprocess"

# The examples of README.md and docs/, as specs need them: blocks, commands with the output that is shown of them, and
# the folder in which they are typed.
module Documents
  ROOT = Subprocess::ROOT
  # Pages for users and contributors, by path.
  PAGES = ["README.md", *Dir.chdir(ROOT) { Dir["docs/**/*.md"].sort }].to_h do |path|
    [path, File.read(File.join(ROOT, path), encoding: "UTF-8")]
  end.freeze

  # A fenced block. `language` is all that follows the fence.
  Block = Struct.new(:page, :line, :language, :code, keyword_init: true) do
    def to_s = "#{page}:#{line}"

    # Each command, and what is shown to come of it.
    def commands
      code.split(/^\$ /).drop(1).map do |text|
        command, shown = text.split("\n", 2)
        Command.new(block: self, text: command.sub(/\s+# .*/, ""), shown: shown.to_s)
      end
    end
  end

  Command = Struct.new(:block, :text, :shown, keyword_init: true)

  BLOCKS = PAGES.flat_map do |page, text|
    text.to_enum(:scan, /^```([^\n]*)\n(.*?)^```$/m).map do
      match = Regexp.last_match
      Block.new(page: page, line: match.pre_match.count("\n") + 1, language: match[1], code: match[2])
    end
  end.freeze

  # Commands that no spec types, and why.
  NOT_TYPED = {
    /\Agem install memintro\z/ => "needs the network, and a gem that is published",
    /\Arake native(?::check)?\z/ => "compiles for minutes",
    %r{\Agem install --local (?:pkg/)?memintro-[\d.]+-x86_64-linux-gnu\.gem\z} => "rake native:check installs it",
    /\Agem (?:uninstall memintro|install memintro --platform ruby)\z/ => "changes what is installed on this machine",
    /\Agdb -ex "set debug-file-directory / => "needs gdb, and what rake native makes",
    /\Aapt-get / => "needs root and the network; bin/setup installs these",
    /\Arake "?matrix/ => "needs root and the network, for hours",
    /\Abin\/bench\b/ => "takes minutes; bench_spec.rb runs the harness with tiny sizes",
    /\Ajournalctl / => "needs a service that logs to systemd's journal",
    /\A(?:echo .* \| )?socat|\| socat / => "needs socat; control_socket_spec.rb sends such lines"
  }.freeze

  # Commands that belong together and need a process beside them: who types them.
  TYPED_BY = {
    /\Agem build |\Agem install --local memintro-[\d.]+\.gem\z/ => "gem_install_spec.rb",
    /\Arbtrace / => "rbtrace_spec.rb",
    /\Amemintro heap-dump / => "heap_dump_spec.rb",
    /\A(?:MEMINTRO_UPDATE_BASELINE=1 )?rake mem_check\z/ => "mem_check_spec.rb",
    /\Amemintro leaks / => "leaks_command_spec.rb",
    /\AMEMINTRO_LISTEN=1 |\Amemintro ps\z|\Amemintro \w+ (?:shop|"shop: worker \d"|puma)(?: |\z)/ =>
      "documents/live_process_spec.rb",
    %r{\Amemintro diff tmp/snap\.\d+\.json tmp/snap\.\d+\.json\z} => "documents/live_process_spec.rb"
  }.freeze

  module_function

  def blocks(*languages) = BLOCKS.select { |block| languages.include?(block.language) }

  def elsewhere?(command) = [*NOT_TYPED.keys, *TYPED_BY.keys].any? { |pattern| command.match?(pattern) }

  # A folder with copies of `examples`, with `tmp` and, where the commands read it, a log of 120 requests.
  def workspace(log: false)
    Dir.mktmpdir("memintro-documents") do |folder|
      %w[bin tmp log].each { |name| FileUtils.mkdir_p(File.join(folder, name)) }
      FileUtils.cp_r(File.join(ROOT, "examples"), folder)
      File.symlink(Subprocess::EXE, File.join(folder, "bin", "memintro"))
      write_log(folder) if log
      yield folder
    end
  end

  LOG = <<~'RUBY'
    require "./examples/leaks/shop"
    File.open("log/production.log", "w") do |log|
      shop = Memintro::Middleware.new(Shop.new, logger: log)
      Memintro.start
      { "search" => 60, "thumbnails" => 30, "upload" => 20, "reports" => 10 }.each do |page, times|
        times.times { |i| shop.call({ "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/#{page}/#{i}" }) }
      end
    end
    system("gzip -c log/production.log > log/production.log.1.gz", exception: true)
  RUBY
  private_constant :LOG

  def write_log(folder)
    Subprocess.run_ruby(code: LOG, requires: ["memintro/rack"], chdir: folder).must_succeed
  end

  # Why commands or code cannot run with this Ruby, or nil.
  def missing(text)
    wanted = { %r{leaks/|log/production} => ["rack/body_proxy", "no Rack here (Debian's ruby-rack)"],
               /Sidekiq/ => ["sidekiq", "no Sidekiq here (Debian's ruby-sidekiq)"] }
    library, reason = wanted.find { |pattern, _| text.match?(pattern) }&.last
    return if library.nil? || Subprocess.run_ruby(code: "require '#{library}'", requires: []).success?

    reason
  end

  # What stays the same from run to run: a line with each number as N and each unit as U. Numbers in names of call
  # sites stay as they are.
  def form(line)
    line.strip.gsub(/\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z| [+-]\d{4})/, "TIME").gsub(/\b\d\d:\d\d:\d\d\b/, "TIME")
        .gsub(%r{(?<![\w.:/\]-])[~±+-]*\d+(?:[,./]\d+)*(?![\w/]|:\d)}, "N").gsub(/(?<=N )(?:[KMG]i)?B\b/, "U")
        .gsub(/(?<= )-(?= )/, "N").gsub(/\b(process)(?:es)?\b|\b(block|allocation|free|collection|page)s?\b/, '\1\2s')
        .gsub(/\bcall sites?\b/, "call sites").gsub("nearly all", "all").squeeze(" ")
  end

  def forms(text) = text.lines.map { |line| form(line) }.reject(&:empty?)

  # Rows of a list are those that begin with a number and its unit. Those that name something of the examples must be
  # there; which others there are differs by Ruby.
  ROW = /\AN U /
  NAMED = %r{examples/|generated\.rb|/:id\z|imemo_iseq\z}
  private_constant :ROW, :NAMED

  # @return [Array<Array<String>>] forms that are shown and not given, and forms that are given and not shown; of the
  #   latter none where the page leaves lines out
  def differences(shown, given, steady: //)
    shown, given = [shown, given].map do |text|
      forms(text.lines.grep(steady).join).map { |line| line.match?(ROW) && !line.match?(NAMED) ? "a row" : line }
    end
    shortened = shown.delete("[…]")
    [surplus(shown, given), shortened ? [] : surplus(given, shown)]
  end

  # Lines that `some` has more often.
  def surplus(some, others)
    count = others.tally
    some.tally.flat_map { |line, times| [line] * [times - count.fetch(line, 0), 0].max }
  end
end
