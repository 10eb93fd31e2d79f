# frozen_string_literal: true

require_relative "commands/rss"
require_relative "../support/names"
require_relative "../support/units"

module Memintro
  module CLI
    class Rss
      # Figures of a process at one time: read now, or saved in a snapshot.
      # @api private
      class MemoryFigures
        # Figures and their headings.
        COLUMNS = { rss: "RSS", peak_rss: "peak RSS", pss: "PSS", uss: "private", shared: "shared", swap: "swap",
                    vsize: "address space" }.freeze
        # Argument of the request.
        ASKED = (COLUMNS.keys - [:shared]).freeze

        # @param memory [ProcessMemory]
        # @return [MemoryFigures]
        # @raise [NoProcessError, ForbiddenError]
        def self.at(memory)
          new(figures(memory), memory.pid, Time.now, "not allowed")
        end

        # @param file [String]
        # @return [MemoryFigures]
        # @raise [SnapshotError]
        def self.saved(file)
          snapshot = Memintro::Snapshot.load(file)
          figures = ASKED.to_h { |name| [name, snapshot.memory[:"#{name}_bytes"]] }
          new(figures, snapshot.pid, snapshot.time, "not in it", file)
        end

        # @param pid [Integer]
        # @param peak [Integer, nil] the only known figure
        # @return [MemoryFigures]
        def self.unseen(pid, peak)
          new(ASKED.to_h { |name| [name, nil] }.merge(peak_rss: peak), pid, Time.now, "not seen")
        end

        # Reads all figures at once. Other users may read RSS of a process, but not PSS.
        def self.figures(memory)
          memory.to_h
        rescue ForbiddenError
          ASKED.to_h { |name| [name, figure(memory, name)] }
        end
        private_class_method :figures

        def self.figure(memory, name)
          memory.public_send(name)
        rescue ForbiddenError
          raise if name == :rss

          nil
        end
        private_class_method :figure

        # @return [Hash{Symbol => Integer, nil}] bytes by the keys of {COLUMNS}
        attr_reader :figures
        # @return [Integer]
        attr_reader :pid
        # @return [Time]
        attr_reader :time
        # @return [String, nil] of the snapshot
        attr_reader :file

        # @param none [String] text for an unknown figure
        def initialize(figures, pid, time, none, file = nil)
          rss, uss = figures.values_at(:rss, :uss)
          # Both are of one walk of the process's pages.
          @figures = figures.merge(shared: rss && uss && [rss - uss, 0].max)
          @pid = pid
          @time = time
          @none = none
          @file = file
        end

        # @return [MemoryFigures] with another peak
        def with_peak(bytes)
          self.class.new(figures.merge(peak_rss: bytes), pid, time, @none, file)
        end

        # @return [Boolean] whether the process has ended
        def ended?
          figures[:vsize].zero?
        end

        # @return [String, nil] of the snapshot, printable
        def shown_file
          file && Names.printable(file)
        end

        # @return [String] above the figures
        def name
          file ? "process #{pid} at #{time.strftime('%FT%TZ')}, #{shown_file}" : "process #{pid}"
        end

        # @return [Array<Array(String, String)>] headings and figures
        def cells
          COLUMNS.map { |key, title| [title, figures[key] ? Units.bytes(figures[key]) : @none] }
        end
      end
    end
  end
end
