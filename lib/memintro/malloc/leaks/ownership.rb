# frozen_string_literal: true

require_relative "../../support/names"
require_relative "owner"

module Memintro
  class Leaks
    # Which Ruby objects own blocks, by what frozen copies have found: the last one, and one from before garbage was
    # collected.
    # @api private
    class Ownership
      # Classes that are listed, and bytes that are worth the name of a library.
      MOST = 20
      WEIGHTY = 256 << 10
      private_constant :MOST, :WEIGHTY

      # The library that most allocations of a call site came from or through, by samples.
      # @param site [String]
      # @return [String, nil]
      def self.library(site)
        shares = Hash.new(0.0)
        Memintro[site]&.native_callers&.each do |caller|
          names = caller.frames.map { |frame| frame[/\A[^(]+/].sub(/\.so\b.*/, "") }.uniq
          # The innermost of equal ones.
          names.each_with_index { |name, place| shares[name] += caller.share - (place * 1e-6) }
        end
        shares.max_by(&:last)&.first
      end

      # @param lines [LeakLines]
      # @param before [LeakLines, nil] of the earlier copy
      def initialize(lines, before)
        @now, @sites = lines.owned
        @before, @sites_before = before ? before.owned : [{}, {}]
      end

      # @return [Array<Owner>] those with most bytes first
      def owners
        weights = (@now.keys | @before.keys).map do |address|
          owned = @now.fetch(address, [0] * 6)
          [address, owned, gone(@before.fetch(address, owned), owned)]
        end
        weights.sort_by! { |_, owned, garbage| -(owned[2] + garbage[2]) }
        weights.first(MOST).filter_map { |address, owned, garbage| owner(address, owned, garbage) }
      end

      private

      def gone(before, now)
        before.zip(now).map { |one, other| [one - other, 0].max }
      end

      def owner(address, owned, garbage)
        name = Native.class_name_at(address) or return
        now = @sites.fetch(address, {})
        sites = named(now)
        left = garbage[2].positive? ? named(less(@sites_before.fetch(address, {}), now)) : []
        objects, blocks, bytes, silent, tracked, tracked_bytes = owned
        first = (garbage[2] > bytes ? left : sites).first
        Owner.new(class_name: Names.utf8(name), objects: objects, blocks: blocks, bytes: bytes, silent_objects: silent,
                  tracked_objects: tracked, tracked_bytes: tracked_bytes, sites: sites.first(MOST),
                  garbage_objects: garbage[0], garbage_bytes: garbage[2], silent_garbage_objects: garbage[3],
                  garbage_sites: left.first(MOST),
                  library: (Ownership.library(first[0]) if first && first[1] >= WEIGHTY))
      end

      def less(before, now)
        before.to_h { |id, bytes| [id, bytes - now.fetch(id, 0)] }.select { |_, bytes| bytes.positive? }
      end

      def named(sites)
        sites = sites.select { |_, bytes| bytes.positive? }
        names = Native.site_names(sites.keys).to_h
        rows = sites.filter_map { |id, bytes| [Names.utf8(names[id]), bytes] if names[id] }
        rows.sort_by { |_, bytes| -bytes }
      end
    end
  end
end
