# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../rakelib/native/binaries"

# Checks of `rake native` on the parts of the precompiled gem.
RSpec.describe Native::Binary do
  def compiled(source, *flags)
    file = File.join(@folder, "part.so")
    code = File.join(@folder, "part.c")
    File.write(code, source)
    system("gcc", "-g", "-shared", "-fPIC", *flags, "-o", file, code, exception: true)
    described_class.new(file)
  end

  around do |example|
    Dir.mktmpdir do |folder|
      @folder = folder
      example.run
    end
  end

  it "knows the newest version of glibc's symbols that a file asks for" do
    # clock_gettime is 2.17's, memfd_create 2.27's.
    source = "#define _GNU_SOURCE\n#include <sys/mman.h>\n#include <time.h>\n"
    older = compiled("#{source}int f(struct timespec *t) { return clock_gettime(0, t); }")
    expect(older.glibc).to eq(Gem::Version.new("2.17"))
    newer = compiled("#{source}int f(struct timespec *t) { return clock_gettime(0, t) + memfd_create(\"\", 0); }")
    expect(newer.glibc).to eq(Gem::Version.new("2.27"))
  end

  it "sees libraries that a machine need not have" do
    source = "double f(double x) { return x; }"
    expect(compiled(source, "-Wl,--no-as-needed", "-lm").foreign_libraries).to eq([])
    expect(compiled(source, "-Wl,--no-as-needed", "-lstdc++").foreign_libraries).to eq(["libstdc++.so.6"])
  end

  it "tells stripped files from others, by the same build id" do
    part = compiled("int f(void) { return 1; }", "-Wl,--build-id")
    id = part.build_id
    expect([part.stripped?, part.lines?, id]).to match([false, true, /\A\h{40}\z/])
    system("strip", "--strip-all", part.path, exception: true)
    expect([part.stripped?, part.lines?, part.build_id]).to eq([true, false, id])
  end

  it "finds the folder that it was built in" do
    part = compiled("int f(void) { return 1; }")
    expect(part.traces_of([@folder, "/nowhere"])).to eq([@folder])
    expect(compiled("int f(void) { return 1; }", "-ffile-prefix-map=#{@folder}=/part").traces_of([@folder])).to eq([])
  end

  it "refuses what it cannot read, and what has no build id" do
    expect { described_class.new(__FILE__).glibc }.to raise_error(Native::Failed, "readelf cannot read #{__FILE__}")
    expect { compiled("int f(void) { return 1; }", "-Wl,--build-id=none").build_id }
      .to raise_error(Native::Failed, "part.so has no build id")
  end
end
