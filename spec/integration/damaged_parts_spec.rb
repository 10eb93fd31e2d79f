# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# A disk that was full when memintro was installed leaves parts of files. The loader maps them all the same, and whoever
# reads behind their end is ended by SIGBUS.
RSpec.describe "An installation with a file that is damaged" do
  around do |example|
    Dir.mktmpdir do |folder|
      FileUtils.cp_r([Subprocess::LIB, File.dirname(Subprocess::EXE)], folder)
      @lib = File.join(folder, "lib")
      @exe = File.join(folder, "exe", "memintro")
      example.run
    end
  end

  let(:program) { "begin; #{work}; rescue LoadError, Memintro::Error => e; puts e.message; end; puts :on" }

  def path(name) = File.join(@lib, "memintro", name)

  def damage(name, how)
    beginning = File.binread(path(name), 100_000)
    File.unlink(path(name))
    how == :pipe ? File.mkfifo(path(name)) : File.binwrite(path(name), beginning)
  end

  def words(name, how)
    return "#{path(name)} is no file" if how == :pipe

    size = File.size(File.join(Subprocess::LIB, "memintro", name))
    "#{path(name)} is incomplete: it has 100000 bytes of #{size}"
  end

  def run(*command) = run_command(RbConfig.ruby, *command)

  start = "require 'memintro'; Memintro.start"
  { "memintro.so" => [start, 0, "not tracking process"], "libmemintro_hook.so" => [start, 1, "the hook is not built"] }
    .each do |name, (work, status, run_says)|
      %i[part pipe].each do |how|
        context "that is a #{how}: #{name}" do
          before { damage(name, how) }

          let(:work) { work }

          it "raises in words, and the program goes on" do
            said = run("-I#{@lib}", "-e", program).must_succeed.stdout
            expect(said).to include(words(name, how)).and end_with("on\n")
          end

          it "does not end or keep what memintro run starts" do
            result = run(@exe, "run", "--", RbConfig.ruby, "-e", "puts 1")
            expect([result.stderr, result.status.exitstatus]).to match([/#{run_says}.*#{words(name, how)}/, status])
          end
        end
      end
    end

  it "is named where the tool is a part of a file" do
    damage("memintro-tool", :part)
    File.chmod(0o755, path("memintro-tool"))
    work = "require 'memintro'; Memintro.heap_dump(ARGV[0])"
    said = run("-I#{@lib}", "-e", "begin; #{work}; rescue Memintro::Error => e; puts e.message; end",
               File.join(@lib, "dump")).must_succeed.stdout
    expect(said).to include(words("memintro-tool", :part))
    result = run(@exe, "plot", Subprocess::EXE)
    expect([result.stderr, result.status.exitstatus]).to eq(["memintro: #{words('memintro-tool', :part)}\n", 1])
  end
end
