# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

# Control groups as a kernel lays them out, in a folder that stands for /.
RSpec.describe Memintro::Cgroup do
  MIB_OF_GROUPS = 1024 * 1024
  V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
  V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" \
             "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"

  around { |example| Dir.mktmpdir { |folder| @root = folder and example.run } }

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(@root + path))
    File.write(@root + path, text)
  end

  # max, current and high in MiB; "max" stays as it is.
  def v2(path, current:, max: "max", high: "max", inactive: 0)
    bytes = ->(value) { value == "max" ? "max\n" : "#{value * MIB_OF_GROUPS}\n" }
    write("/sys/fs/cgroup#{path}/memory.max", bytes[max])
    write("/sys/fs/cgroup#{path}/memory.high", bytes[high])
    write("/sys/fs/cgroup#{path}/memory.current", bytes[current])
    write("/sys/fs/cgroup#{path}/memory.stat", "anon 5\ninactive_file #{inactive * MIB_OF_GROUPS}\nactive_file 7\n")
  end

  def v1(path, usage:, limit: nil, inactive: 0, hierarchy: 1)
    folder = "/sys/fs/cgroup/memory#{path}"
    write("#{folder}/memory.limit_in_bytes", "#{limit ? limit * MIB_OF_GROUPS : 9_223_372_036_854_771_712}\n")
    write("#{folder}/memory.usage_in_bytes", "#{usage * MIB_OF_GROUPS}\n")
    write("#{folder}/memory.stat", "inactive_file 3\ntotal_inactive_file #{inactive * MIB_OF_GROUPS}\n")
    write("#{folder}/memory.use_hierarchy", "#{hierarchy}\n")
  end

  def group(own:, mounts:)
    write("/proc/self/cgroup", own)
    write("/proc/self/mountinfo", mounts)
    Memintro::CgroupFiles.new(@root).read
  end

  def mib(bytes) = bytes && bytes / MIB_OF_GROUPS

  context "with version 2" do
    it "tells limit, usage, high and the distance to the kill, page cache left out" do
      v2("/app", max: 512, current: 300, high: 400, inactive: 40)
      found = group(own: "0::/app\n", mounts: V2_MOUNT)
      expect([found.version, found.path]).to eq([2, "/sys/fs/cgroup/app"])
      expect([found.limit_bytes, found.usage_bytes, found.reclaimable_bytes, found.distance_bytes, found.high_bytes,
              found.high_distance_bytes].map { |bytes| mib(bytes) }).to eq([512, 300, 40, 252, 400, 100])
    end

    it "reads groups beside mounts whose names are no text, and groups of such names" do
      v2("/caf\xE9", max: 512, current: 300)
      found = group(own: "0::/caf\xE9\n", mounts: "31 23 0:27 / /mnt/\xFF rw - ext4 /dev/\xFE rw\n#{V2_MOUNT}")
      expect([found.path, mib(found.limit_bytes)]).to eq(["/sys/fs/cgroup/caf\xE9", 512])
    end

    it "takes the group that will be reached first, here one above" do
      v2("/pod", max: 600, current: 580)
      v2("/pod/app", max: 512, current: 300)
      v2("/pod/app/worker", current: 290)
      found = group(own: "0::/pod/app/worker\n", mounts: V2_MOUNT)
      expect([found.path, mib(found.limit_bytes), mib(found.distance_bytes)]).to eq(["/sys/fs/cgroup/pod", 600, 20])
    end

    it "takes the smaller limit further up only if less is left of it" do
      v2("/pod", max: 600, current: 310)
      v2("/pod/app", max: 512, current: 300)
      found = group(own: "0::/pod/app\n", mounts: V2_MOUNT)
      expect([found.path, mib(found.distance_bytes)]).to eq(["/sys/fs/cgroup/pod/app", 212])
    end

    it "looks for the tightest high on its own" do
      v2("/pod", max: 600, current: 580, high: 590)
      v2("/pod/app", max: 2_000, current: 300, high: 305)
      found = group(own: "0::/pod/app\n", mounts: V2_MOUNT)
      expect([mib(found.limit_bytes), mib(found.high_bytes), mib(found.high_distance_bytes)]).to eq([600, 305, 5])
    end

    it "has usage and no distance where nothing limits" do
      v2("/app", current: 300)
      found = group(own: "0::/app\n", mounts: V2_MOUNT)
      expect(found).to have_attributes(limit_bytes: nil, distance_bytes: nil, high_bytes: nil)
      expect(mib(found.usage_bytes)).to eq(300)
      expect(found.inspect).to eq("#<Memintro::Cgroup v2 /sys/fs/cgroup/app 300.0 MiB without limit>")
    end

    it "takes the group above where the memory controller is not handed down" do
      v2("/app", max: 512, current: 300)
      FileUtils.mkdir_p("#{@root}/sys/fs/cgroup/app/threads")
      expect(group(own: "0::/app/threads\n", mounts: V2_MOUNT).path).to eq("/sys/fs/cgroup/app")
    end

    it "finds the container's own group at the top of its name space" do
      v2("", max: 512, current: 500)
      found = group(own: "0::/\n", mounts: V2_MOUNT)
      expect([found.path, mib(found.distance_bytes)]).to eq(["/sys/fs/cgroup", 12])
    end

    it "finds it too where the path is the host's" do
      v2("", max: 512, current: 500)
      expect(group(own: "0::/docker/abc\n", mounts: V2_MOUNT).path).to eq("/sys/fs/cgroup")
      expect(group(own: "0::/../other\n", mounts: V2_MOUNT).path).to eq("/sys/fs/cgroup")
    end

    it "is below zero where the limit was lowered under what is used" do
      v2("/app", max: 100, current: 130)
      expect(mib(group(own: "0::/app\n", mounts: V2_MOUNT).distance_bytes)).to eq(-30)
    end

    it "is nil for the machine's root, which no group holds" do
      write("/sys/fs/cgroup/memory.stat", "anon 1\n")
      expect(group(own: "0::/\n", mounts: V2_MOUNT)).to be_nil
    end

    it "reads mount points with spaces" do
      v2("/app", max: 512, current: 300)
      FileUtils.mv("#{@root}/sys/fs/cgroup", "#{@root}/sys/fs/c g")
      found = group(own: "0::/app\n", mounts: V2_MOUNT.sub("cgroup") { 'c\040g' })
      expect(found.path).to eq("/sys/fs/c g/app")
    end
  end

  context "with version 1" do
    let(:own) { "9:name=systemd:/\n4:memory,hugetlb:/pod/app\n0::/\n" }

    it "tells limit, usage and distance" do
      v1("/pod/app", limit: 512, usage: 300, inactive: 40)
      found = group(own: own, mounts: V2_MOUNT + V1_MOUNT)
      expect([found.version, found.path, mib(found.limit_bytes), mib(found.usage_bytes), mib(found.distance_bytes),
              found.high_bytes]).to eq([1, "/sys/fs/cgroup/memory/pod/app", 512, 300, 252, nil])
    end

    it "takes the tightest above, where groups inherit limits" do
      v1("", usage: 9_000)
      v1("/pod", limit: 310, usage: 305)
      v1("/pod/app", limit: 512, usage: 300)
      expect(group(own: own, mounts: V1_MOUNT).path).to eq("/sys/fs/cgroup/memory/pod")
    end

    it "leaves those above alone where groups do not" do
      v1("", usage: 9_000)
      v1("/pod", limit: 310, usage: 305, hierarchy: 0)
      v1("/pod/app", limit: 512, usage: 300, hierarchy: 0)
      expect(group(own: own, mounts: V1_MOUNT).path).to eq("/sys/fs/cgroup/memory/pod/app")
    end

    it "finds the group that is mounted into a container" do
      v1("", limit: 512, usage: 300)
      mounts = V1_MOUNT.sub("0:32 /", "0:32 /pod/app")
      found = group(own: own, mounts: mounts)
      expect([found.path, mib(found.limit_bytes)]).to eq(["/sys/fs/cgroup/memory", 512])
    end

    it "has usage and no distance where nothing limits, and is nil at the root" do
      v1("", usage: 9_000)
      v1("/pod/app", usage: 300)
      expect(group(own: own, mounts: V1_MOUNT)).to have_attributes(limit_bytes: nil, distance_bytes: nil)
      expect(group(own: "4:memory:/\n", mounts: V1_MOUNT)).to be_nil
    end
  end

  it "is nil without control groups, without /proc, and where files make no sense" do
    expect(Memintro::CgroupFiles.new(@root).read).to be_nil
    expect(group(own: "", mounts: "")).to be_nil
    expect(group(own: "nonsense\n", mounts: "nonsense\n")).to be_nil
    write("/sys/fs/cgroup/app/memory.current", "many\n")
    expect(group(own: "0::/app\n", mounts: V2_MOUNT)).to be_nil
  end

  it "is frozen, and read by name" do
    v2("/app", max: 512, current: 300)
    found = group(own: "0::/app\n", mounts: V2_MOUNT)
    expect(found).to be_frozen
    expect(found[:distance_bytes]).to eq(212 * MIB_OF_GROUPS)
    expect(found.to_h.keys).to eq(described_class::ATTRIBUTES)
    expect(found.inspect)
      .to eq("#<Memintro::Cgroup v2 /sys/fs/cgroup/app 300.0 MiB of 512.0 MiB, killed after 212.0 MiB more>")
  end
end
