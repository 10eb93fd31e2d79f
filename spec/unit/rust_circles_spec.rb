# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/lint/rust_circles"

# `rake lint:rust_circles` finds files that use each other in a circle.
RSpec.describe RustCircles do
  # The circles of a crate of these files.
  def circles_of(files)
    Dir.mktmpdir do |folder|
      files.each do |name, text|
        path = File.join(folder, "one/src", name)
        FileUtils.mkdir_p(File.dirname(path))
        File.write(path, text)
      end
      described_class.new(folder).circles.map { |circle| circle.map { |path| path.delete_prefix("one/src/") } }
    end
  end

  it "finds a circle, whichever way its files name each other" do
    files = { "lib.rs" => "mod a; mod b; mod c; mod d;", "a.rs" => "use crate::{d, b::{self, Thing as Other}};",
              "b.rs" => "use super::c;", "c.rs" => "fn f() { crate::a::f(); }", "d.rs" => "fn f() {}" }
    expect(circles_of(files)).to eq([%w[a.rs b.rs c.rs]])
  end

  it "finds several circles, the largest first" do
    files = { "lib.rs" => "mod a; mod b; mod c; mod d; mod e;",
              "a.rs" => "use crate::b::B;", "b.rs" => "use crate::a::A;",
              "c.rs" => "use crate::d;", "d.rs" => "use crate::e;", "e.rs" => "use crate::{a, c};" }
    expect(circles_of(files)).to eq([%w[c.rs d.rs e.rs], %w[a.rs b.rs]])
  end

  it "follows what a module passes on, and what it uses of its children" do
    passed_on = { "lib.rs" => "mod a; mod b;", "b/mod.rs" => "mod x; mod y; pub use y::thing;", "b/x.rs" => "",
                  "b/y.rs" => "use super::x;", "a.rs" => "use crate::b::thing;" }
    expect(circles_of({ **passed_on, "b/x.rs" => "use crate::a;" })).to eq([%w[a.rs b/x.rs b/y.rs]])
    called = { **passed_on, "b/mod.rs" => "mod x; mod y; pub fn thing() { x::act() }", "b/x.rs" => "use crate::a;" }
    expect(circles_of(called)).to eq([%w[a.rs b/mod.rs b/x.rs]])
  end

  it "does not mind what a child uses of its parents, comments, texts and tests" do
    files = { "lib.rs" => "mod a; mod b;", "a.rs" => "mod x; use x::X; const T: &str = \"crate::b::f\"; // crate::b::f",
              "a/x.rs" => "use super::Y; use crate::Z;\n/* crate::b */ const C: char = '\"'; const D: char = '\"';",
              "b.rs" => "use crate::a;\n" }
    expect(circles_of(files)).to eq([])
    tested = "#[cfg(test)]\nmod tests { use crate::b; fn f() { if true {} } }\n"
    expect(circles_of({ **files, "a.rs" => "#{files["a.rs"]}\n#{tested}" })).to eq([])
    expect(circles_of({ **files, "a.rs" => "#{files["a.rs"]}\n#{tested}use crate::b;" })).to eq([%w[a.rs b.rs]])
  end

  it "sees one of more than three files when it is planted in the hook" do
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(File.join(Subprocess::ROOT, "crates/hook"), folder)
      File.write(File.join(folder, "hook/src/functions.rs"), "use crate::intercept;\n", mode: "a")
      largest = described_class.new(folder).circles.first
      expect(largest).to include("hook/src/functions.rs", "hook/src/intercept.rs", "hook/src/patch/mod.rs")
      expect(largest.size).to be > 3
    end
  end

  it "makes the task fail, with the files" do
    Dir.mktmpdir do |folder|
      rakelib = File.join(folder, "rakelib")
      FileUtils.mkdir(rakelib)
      %w[lint lint.rake].each { |name| FileUtils.cp_r(File.join(Subprocess::ROOT, "rakelib", name), rakelib) }
      File.write(File.join(folder, "Rakefile"), "")
      source = File.join(folder, "crates/one/src")
      FileUtils.mkdir_p(source)
      %w[a b c d].each_cons(2) { |one, other| File.write("#{source}/#{one}.rs", "use crate::#{other};") }
      File.write("#{source}/d.rs", "use crate::a;")
      File.write("#{source}/lib.rs", "mod a; mod b; mod c; mod d;")
      output, status = Open3.capture2e("rake", "-s", "lint:rust_circles", chdir: folder)
      expect(output).to include("4 files: one/src/a.rs one/src/b.rs one/src/c.rs one/src/d.rs")
      expect(status.exitstatus).to eq(1)
    end
  end
end
