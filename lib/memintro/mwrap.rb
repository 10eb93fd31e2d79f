# frozen_string_literal: true

require_relative "../memintro"
require_relative "compat/mwrap/dump_at_exit"
require_relative "compat/mwrap/source_location"
require_relative "malloc/call_sites"

# The interface of the mwrap gem, implemented by memintro: same names, arguments and yields, for existing programs. As
# with mwrap, requiring it starts nothing: run the program under `memintro run`, or call {Memintro.start}. Native
# callers are named `libfoo.so(symbol+0x1c)` instead of by an address. Mwrap::HeapPageBody does not exist.
#
# The `MWRAP` variable dumps at exit: `dump_path:FILE` (appended to) or `dump_fd:N`, and `dump_min:BYTES`, separated
# by commas.
#
# @example
#   require "memintro/mwrap"
#   Mwrap.clear
#   leak_memory
#   Mwrap.each { |location, total, allocations, frees, age_total, max_lifespan| … }
module Mwrap
  class << self
    # Writes a line for each location: total bytes, allocations, location. In sampled mode, a first line that begins
    # with `#` says that they are estimates.
    #
    # @param io [IO, nil] a real one, no StringIO; nil: standard error
    # @param min [Integer, nil] leave out locations with so many total bytes or fewer
    # @return [nil]
    # @raise [TypeError] if `io` is not an IO or `min` not a number
    def dump(io = $stderr, min = 0)
      target = IO.try_convert(io.nil? ? $stderr : io)
      raise TypeError, "wrong argument type #{io.class} (expected an IO)" unless target

      least = minimum(min)
      Memintro.untracked do
        target.write(note) if Memintro.totals.estimated?
        locations(least).each do |name, total, allocations|
          target.write(format("%16d %12d ", total, allocations).b << name.b << "\n")
        end
      end
      nil
    end

    # Sets all counters to zero. Live blocks stay known, and their frees are counted.
    # @return [nil]
    def reset
      Memintro::Native.reset
    end

    # Clears all locations and blocks.
    # @return [nil]
    def clear
      Memintro.clear
    end

    # Visits all locations of one instant.
    #
    # @param min [Integer, nil] leave out locations with so many total bytes or fewer
    # @yieldparam location [String]
    # @yieldparam total [Integer] bytes
    # @yieldparam allocations [Integer]
    # @yieldparam frees [Integer]
    # @yieldparam age_total [Integer] sum of the ages at free, in GC generations
    # @yieldparam max_lifespan [Integer] greatest age at free
    # @return [nil, Enumerator] an enumerator without a block
    # @raise [TypeError] if `min` is not a number
    def each(min = 0, &block)
      least = minimum(min)
      return enum_for(:each, min) unless block

      Memintro.untracked { locations(least) }.each(&block)
      nil
    end

    # @param location [String] as {each} yields it
    # @return [Mwrap::SourceLocation, nil]
    # @raise [TypeError] if `location` is not a String
    def [](location)
      raise TypeError, "wrong argument type #{location.class} (expected String)" unless location.is_a?(String)

      SourceLocation.find(location)
    end

    # Does not track what the current thread allocates in the block. May be nested.
    #
    # @yieldparam depth [Integer] 1 in the outermost
    # @return [Object] the block's value
    # @raise [LocalJumpError] without a block
    def quiet
      depth = Memintro::Native.untracked_enter
      yield depth
    ensure
      Memintro::Native.untracked_leave
    end

    # @return [Integer] bytes allocated since the start, {reset} or {clear}
    def total_bytes_allocated
      Memintro.totals.allocated_bytes
    end

    # @return [Integer] bytes given back since then
    def total_bytes_freed
      Memintro.totals.freed_bytes
    end

    private

    def note
      "# memintro: estimates from a sample, one byte in #{Memintro::Native.sample_bytes}\n"
    end

    def minimum(min)
      return 0 if min.nil?
      raise TypeError, "wrong argument type #{min.class} (expected Integer)" unless min.is_a?(Numeric)
      raise ArgumentError, "min is #{min}; it must not be negative" if min.negative?

      min.to_i
    end

    def locations(least)
      sites = Memintro::CallSites.take
      columns = Memintro::SiteRow
      figures = [columns::TOTAL_BYTES, columns::ALLOCATIONS, columns::FREES, columns::AGE_TOTAL, columns::MAX_LIFESPAN]
      sites.rows.filter_map do |row|
        [Memintro::CallSite.new(row).name, *row.values_at(*figures)] if row[columns::TOTAL_BYTES] > least
      end
    end
  end

  DumpAtExit.install(ENV["MWRAP"])
end
