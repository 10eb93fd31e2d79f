# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/signatures"

# sig/ agrees with the code, and, wherever this Ruby has the tool, with itself and with Ruby's own signatures.
RSpec.describe "sig/" do
  # Debian calls it by the Ruby's version.
  program = %W[rbs rbs#{RUBY_VERSION[/\A\d+\.\d+/]}].find do |name|
    ENV.fetch("PATH").split(":").any? { |folder| File.executable?(File.join(folder, name)) }
  end
  declared = Signatures.read(File.join(Subprocess::ROOT, "sig"))
  everything = ["memintro", *%w[diff sampler snapshot trend mwrap get_process_mem iseq_collector rack sidekiq rspec
                                minitest mem_check heap/row measure/comparison
                                process/memory malloc/leaks/owner].map { |name| "memintro/#{name}" }]

  it "is valid" do
    skip "no rbs here" unless program
    skip "#{program} is another Ruby's" unless run_command(program, "--version", way: :bare).success?
    command = [program, "-r", "bigdecimal", "-r", "pathname", "-I", "sig", "validate"]
    result = run_command(*command, way: :bare, chdir: Subprocess::ROOT)
    expect([result.stderr.scan(/ERROR.*/), result.status.exitstatus]).to eq([[], 0])
  end

  it "declares methods that there are, with their keywords" do
    paths = declared.values.flat_map(&:keys).grep_v(/::_\w+#/)
    expect(paths).to include("GetProcessMem#pid", "Memintro::CallSite#live_bytes")
    code = <<~RUBY
      require "json"
      puts JSON.generate(JSON.parse($stdin.read).to_h { |path|
        owner, dot, name = path.match(/\\A([\\w:]+)([.#])(.+)\\z/).captures
        owner = Object.const_get(owner)
        method = name == "initialize" || dot == "#" ? owner.instance_method(name) : owner.method(name) rescue nil
        [path, method&.parameters]
      })
    RUBY
    found = JSON.parse(run_ruby(code: code, requires: everything, stdin: JSON.generate(paths)).must_succeed.stdout)
    expect(found.select { |_, parameters| parameters.nil? }.keys).to eq([])
    different = declared.values.inject(:merge).reject do |path, keywords|
      parameters = found[path]
      parameters.nil? || parameters.any? { |kind, _| kind == "keyrest" } ||
        keywords.sort == parameters.filter_map { |kind, name| name if kind.start_with?("key") }.sort
    end
    expect(different).to eq({})
  end

  it "declares every documented method of the classes that it knows" do
    code = <<~'RUBY'
      YARD::Logger.instance.level = 4
      YARD.parse(Dir["lib/**/*.rb"])
      own = ->(object) { !object.root? && (object.tag(:api)&.text == "private" || own.call(object.namespace)) }
      puts YARD::Registry.all(:method).select { |method| method.visibility == :public && !own.call(method) }.map(&:path)
    RUBY
    result = run_command(RbConfig.ruby, "-ryard", "-e", code, chdir: Subprocess::ROOT)
    skip "no YARD here" if result.stderr.include?("cannot load such file -- yard")
    documented = result.must_succeed.stdout.split.select { |path| declared.key?(path[/\A[\w:]+/]) }
    expect(documented).to include("Memintro.doctor", "Memintro::CallSite#to_s")
    # rbs knows what is made by its `initialize`.
    missing = documented.map { |path| path.sub(/\.new\z/, "#initialize") } - declared.values.flat_map(&:keys)
    expect(missing.join(" ")).to eq("")
  end
end
