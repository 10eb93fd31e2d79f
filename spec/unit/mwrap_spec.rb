# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/mwrap"
require "stringio"
require "tempfile"

RSpec.describe Mwrap do
  include_context "with a fake native"

  let(:leak) { ["/app/leak.rb:12", 102_400_000, 100_000, 50_000, 25_000, 2] }

  def written
    Tempfile.create("mwrap") do |file|
      yield file
      file.flush
      File.read(file.path)
    end
  end

  describe ".each" do
    it "yields location, total, allocations, frees, age_total and max_lifespan" do
      expect(described_class.each.to_a).to eq([["(gc)", 400, 4, 4, 8, 3], leak,
                                               ["libz.so.1(deflateInit2_+0x9c)", 5000, 10, 2, 0, 0],
                                               ["/usr/lib/ruby/3.1.0/json/common.rb:216", 90, 3, 3, 0, 0]])
      expect(described_class.each {}).to be_nil
    end

    it "leaves out locations whose total is the minimum or less" do
      expect(described_class.each(4999).map(&:first)).to eq([leak[0], "libz.so.1(deflateInit2_+0x9c)"])
      expect(described_class.each(5000).map(&:first)).to eq([leak[0]])
      expect(described_class.each(nil).count).to eq(4)
    end

    it "refuses a minimum that is no number" do
      expect { described_class.each("1") {} }.to raise_error(TypeError, "wrong argument type String (expected Integer)")
      expect { described_class.each(-1) {} }.to raise_error(ArgumentError, "min is -1; it must not be negative")
    end
  end

  describe ".dump" do
    it "writes total, calls and location in columns" do
      expect(written { |io| expect(described_class.dump(io, 399)).to be_nil })
        .to eq("             400            4 (gc)\n" \
               "       102400000       100000 /app/leak.rb:12\n" \
               "            5000           10 libz.so.1(deflateInit2_+0x9c)\n")
    end

    it "takes a real IO only" do
      expect { described_class.dump(:bogus) }.to raise_error(TypeError, "wrong argument type Symbol (expected an IO)")
      expect { described_class.dump(StringIO.new) }.to raise_error(TypeError, /StringIO/)
      expect { described_class.dump($stderr, :much) }.to raise_error(TypeError, /Symbol \(expected Integer\)/)
      expect { described_class.dump(File.open(File::NULL).tap(&:close)) }.to raise_error(IOError)
    end

    it "writes names of any encoding as they are" do
      native.rows = [[3, :ruby, "/\xFF.rb".b, 1, 1, 0, 8, 0, 0, 0, 0], [4, :ruby, "/é.rb", 1, 1, 0, 8, 0, 0, 0, 0]]
      expect(written { |io| described_class.dump(io) }.b.scan(%r{/.*}n)).to eq(["/\xFF.rb:1".b, "/é.rb:1".b])
    end
  end

  it ".clear forgets, .reset sets to zero" do
    expect([described_class.clear, described_class.reset]).to eq([nil, nil])
    expect(native.calls).to eq(%i[clear reset])
  end

  it ".quiet yields its depth, nests, and gives the block's value" do
    expect(described_class.quiet { |outer| [outer, described_class.quiet { |inner| inner }] }).to eq([1, 2])
    expect { described_class.quiet }.to raise_error(LocalJumpError)
  end

  it "gives the totals" do
    expect([described_class.total_bytes_allocated, described_class.total_bytes_freed])
      .to eq([102_405_490, 51_201_490])
  end

  describe ".[]" do
    let(:location) { described_class["/app/leak.rb:12"] }

    it "finds a location by the name that each yields, and only by that" do
      expect(location).to be_a(Mwrap::SourceLocation)
      expect([described_class["leak.rb:12"], described_class["gone.rb:1"]]).to eq([nil, nil])
      expect { described_class[12] }.to raise_error(TypeError, "wrong argument type Integer (expected String)")
    end

    it "has name, total, allocations, frees and lifespans" do
      expect([location.name, location.total, location.allocations, location.frees, location.mean_lifespan,
              location.max_lifespan]).to eq([*leak.first(4), 0.5, 2])
      expect(location.name).to be_frozen
    end

    it "visits live blocks with size and generation" do
      native.block_list = [0x1000, 1024, 0, 1.0, 0x2000, 512, 3, 1.0]
      expect(location.each.to_a).to eq([[1024, 7], [512, 4]])
    end

    it "is asked anew each time" do
      found = location
      native.rows = [[9, :ruby, "/app/leak.rb", 12, 1, 0, 8, 0, 0, 0, 0]]
      expect(found.total).to eq(8)
      native.rows = []
      expect([found.total, found.mean_lifespan, found.each.to_a]).to eq([0, 0.0, []])
    end
  end
end
