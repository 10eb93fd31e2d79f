# frozen_string_literal: true

require_relative "cgroup"

module Memintro
  # Finds the memory control groups around this process, and reads what their files say.
  # @api private
  class CgroupFiles
    # Version 1 writes "no limit" as the largest whole number of pages.
    NO_LIMIT = (2**63) - (2**20)

    # By version: the files of limit and usage, and the figure of memory.stat.
    NAMES = { 1 => %w[memory.limit_in_bytes memory.usage_in_bytes total_inactive_file].freeze,
              2 => %w[memory.max memory.current inactive_file].freeze }.freeze
    private_constant :NAMES

    # The contents of one group's files.
    Level = Struct.new(:path, :limit, :usage, :reclaimable, :high) do
      def distance = limit && (limit - usage + reclaimable)
      def high_distance = high && (high - usage)
    end
    private_constant :Level

    # @param root [String] folder that stands for `/`
    def initialize(root = "")
      @root = root.chomp("/")
    end

    # @return [Cgroup, nil] nil if this process is in no memory group
    def read
      version, top, folder = locate
      return unless version

      levels = folders(folder, top).map { |path| level(version, path) }
      levels = levels.take(levels_that_count(folder, top)) if version == 1
      levels.compact!
      # The memory of all processes of the machine, for a process that is in no group.
      return if levels.empty? || (version == 1 && folder == top && levels.none?(&:limit))

      summary(version, levels)
    end

    private

    def summary(version, levels)
      tightest = levels.select(&:limit).min_by(&:distance) || levels.first
      high = levels.select(&:high).min_by(&:high_distance)
      path = tightest.path.dup.force_encoding(Encoding.find("filesystem"))
      Cgroup.new(version: version, path: path, limit_bytes: tightest.limit, usage_bytes: tightest.usage,
                 reclaimable_bytes: tightest.reclaimable, high_bytes: high&.high,
                 high_distance_bytes: high&.high_distance)
    end

    # @return [Array, nil] version, folder of the outermost group that can be seen, folder of the process's own
    def locate
      groups = lines("/proc/self/cgroup").map { |line| line.chomp.split(":", 3) }.select { |parts| parts.size == 3 }
      first = groups.find { |_, controllers, _| controllers.split(",").include?("memory") }
      unified = groups.find { |number, controllers, _| number == "0" && controllers.empty? }
      version = first ? 1 : 2
      path = (first || unified)&.last
      top, inside = mount(version, path) if path
      top && [version, top, own_folder(top, inside, path)]
    end

    # @return [Array, nil] where the hierarchy is mounted, and which of its groups stands there
    def mount(version, path)
      # A machine may have thousands of mounts, so no String is made for each.
      mounts = text("/proc/self/mountinfo").to_s.scan(/^.* - cgroup.*$/).filter_map do |line|
        before, after = line.split(" - ", 2).map(&:split)
        next unless after && (version == 2 ? after[0] == "cgroup2" : memory?(after))

        [unescape(before[4]), unescape(before[3])]
      end
      mounts.find { |_, inside| below?(path, inside) } || mounts.first
    end

    def memory?(after)
      after[0] == "cgroup" && after.last.split(",").include?("memory")
    end

    # A container may see its path as the host names it, without such a folder inside. Its own group is then at the top.
    def own_folder(top, inside, path)
      return top unless below?(path, inside)

      folder = "#{top}/#{path.delete_prefix(inside.chomp('/')).delete_prefix('/')}".chomp("/")
      File.directory?(@root + folder) ? folder : top
    end

    def below?(path, folder)
      !path.include?("/..") && (path == folder || path.start_with?("#{folder.chomp('/')}/"))
    end

    # @return [Array<String>] the folder and those above it, to the top
    def folders(folder, top)
      found = [folder]
      found << File.dirname(found.last) until found.last == top
      found
    end

    # Without hierarchy, the limit of a version 1 group does not apply to its children.
    def levels_that_count(folder, top)
      1 + folders(folder, top).drop(1).take_while { |path| text("#{path}/memory.use_hierarchy") != "0" }.size
    end

    def level(version, path)
      limit, usage, reclaimable = NAMES.fetch(version)
      used = number("#{path}/#{usage}")
      return unless used

      Level.new(path, number("#{path}/#{limit}"), used, statistic(path, reclaimable),
                version == 2 ? number("#{path}/memory.high") : nil)
    end

    def statistic(path, name)
      text("#{path}/memory.stat").to_s[/^#{name} (\d+)$/, 1].to_i
    end

    # @return [Integer, nil] nil: no limit, or no such file
    def number(path)
      digits = text(path)
      return unless digits&.match?(/\A\d+\z/)

      value = Integer(digits, 10)
      value if value < NO_LIMIT
    end

    def lines(path)
      text(path).to_s.lines
    end

    # Names of groups and mounts need not be text.
    def text(path)
      File.binread(@root + path).chomp
    rescue SystemCallError
      nil
    end

    def unescape(path)
      path.gsub(/\\(\d{3})/) { Regexp.last_match(1).oct.chr }
    end
  end
end
