# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# A memory check of a real gem with a known leak, and of the commit that corrected it. The gem's source is no part of
# this repository: MEMINTRO_REDCARPET names a git repository of it (git clone https://github.com/vmg/redcarpet).
RSpec.describe "Memintro::MemCheck of redcarpet", :long do
  before do
    skip "only on x86-64" unless RUBY_PLATFORM.start_with?("x86_64")
    @repository = ENV.fetch("MEMINTRO_REDCARPET", nil)
    skip "MEMINTRO_REDCARPET names no git repository of redcarpet" unless @repository
    skip "no test-unit here" if Gem::Specification.find_all_by_name("test-unit").empty?
    found = run_command("git", "-C", @repository, "cat-file", "-e", "e2e26e2aec320b853282f1f8eca190560b52b0d9^{commit}")
    skip "#{@repository} has no commit e2e26e2: #{found.stderr.strip}" unless found.success?
  end

  around { |example| Dir.mktmpdir("memintro-redcarpet") { |folder| @folder = folder and example.run } }

  RAKEFILE = <<~RUBY
    require "memintro/mem_check"
    Memintro::MemCheck.config(binary_name: "redcarpet")
    Memintro::MemCheck::TestTask.new { |t| t.libs << "test" and t.pattern = "test/*_test.rb" and t.warning = false }
  RUBY

  # The gem as of this commit, built, and its tests in a check: the report, and the exit status.
  def checked(commit)
    folder = File.join(@folder, commit).tap { |it| FileUtils.mkdir_p(it) }
    run_command("sh", "-ec", 'git -C "$0" archive "$1" ext lib bin test | tar -x -C "$2"', @repository, commit, folder)
      .must_succeed
    extension = File.join(folder, "ext", "redcarpet")
    run_command("sh", "-ec", '"$0" extconf.rb && make', RbConfig.ruby, chdir: extension).must_succeed
    FileUtils.cp(File.join(extension, "redcarpet.so"), File.join(folder, "lib"))
    File.write(File.join(folder, "Rakefile"), RAKEFILE)
    result = run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", "-S", "rake", "mem_check",
                         way: :live, chdir: folder)
    [result.stderr.scrub, result.status.exitstatus, result.stdout.scrub]
  end

  it "names the object without a free function in 3.3.2, and nothing of the kind in the commit that gave it one" do
    text, status, out = checked("v3.3.2")
    titles = text.scan(/^\d+\. (.*)/).flatten
    place = /T_DATA, which has no free function, from rb_redcarpet_rbase_alloc \(rc_render\.c:374\)\z/
    # Two ways lead there.
    expect(titles).to match([place, place]), "#{text}\n#{out}"
    expect(titles.sum { |title| title[/\A(\d+) blocks/, 1].to_i }).to be_between(120, 151)
    # Some tests expect what an older Ruby did, and fail.
    expect(status).to eq(text.include?("The tests passed") ? 3 : 1)

    text, status, = checked("e2e26e2")
    expect(text).to match(/^mem_check: nothing found in redcarpet\.so, whose stacks have \d+ live blocks?\./)
    expect(status).to eq(text.include?("The tests passed") ? 0 : 1)
  end
end
