# frozen_string_literal: true

require_relative "../../support/names"
require_relative "holder"
require_relative "owner"

module Memintro
  class Leaks
    # Which Ruby objects own blocks, by what frozen copies have found: the last one, and one from before garbage was collected.
    # @api private
    class Ownership
      # Classes that are listed, and bytes that are worth the name of a library.
      MOST = 20
      WEIGHTY = 256 << 10
      NO_SITE = (2**32) - 1
      private_constant :MOST, :WEIGHTY, :NO_SITE

      # @param lines [Lines]
      # @param before [Lines, nil]
      def initialize(lines, before)
        @now = lines
        @before = before
      end

      # @return [Array<Owner>] those with most bytes first
      def owners
        now, before = [@now, @before].map { |lines| classes(lines) }
        weights = (now.keys | before.keys).map do |address|
          owned = now.fetch(address, [0] * 4)
          [address, owned, before.empty? ? [0] * 4 : gone(before.fetch(address, owned), owned)]
        end
        weights.sort_by! { |_, owned, garbage| -(owned[2] + garbage[2]) }
        weights.first(MOST).filter_map { |address, owned, garbage| owner(address, owned, garbage) }
      end

      private

      # By class: objects, blocks, bytes, and objects of which Ruby does not know the size.
      def classes(lines)
        lines ? lines.all("owner").to_h { |address, *figures| [address, figures] } : {}
      end

      def gone(before, now)
        before.zip(now).map { |one, other| [one - other, 0].max }
      end

      def owner(address, owned, garbage)
        name = Native.class_name_at(address) or return
        sites = named(sites_of(@now, address))
        left = garbage[2].positive? ? named(less(sites_of(@before, address), sites_of(@now, address))) : []
        objects, blocks, bytes, silent = owned
        first = (garbage[2] > bytes ? left : sites).first
        Owner.new(class_name: Names.utf8(name), objects: objects, blocks: blocks, bytes: bytes, silent_objects: silent,
                  tracked_bytes: sites.sum(&:last), sites: sites.first(MOST), garbage_objects: garbage[0],
                  garbage_bytes: garbage[2], silent_garbage_objects: garbage[3], garbage_sites: left.first(MOST),
                  library: (Ownership.library(first[0]) if first && first[1] >= WEIGHTY))
      end

      # Bytes by the numbers of call sites.
      def sites_of(lines, address)
        lines.all("anchored").each_with_object(Hash.new(0)) do |(id, _, _, *holders), sums|
          next if id == NO_SITE

          holders.each_slice(4) { |kind, label, bytes,| sums[id] += bytes if kind == Holder::OBJECT && label == address }
        end
      end

      def less(before, now)
        before.to_h { |id, bytes| [id, bytes - now[id]] }.select { |_, bytes| bytes.positive? }
      end

      def named(sites)
        sites = sites.select { |_, bytes| bytes.positive? }
        names = Native.site_names(sites.keys).to_h
        sites.filter_map { |id, bytes| [Names.utf8(names[id]), bytes] if names[id] }.sort_by { |_, bytes| -bytes }
      end

      # The library that most allocations of a call site came from or through, by samples.
      # @param site [String]
      # @return [String, nil]
      def self.library(site)
        shares = Hash.new(0.0)
        Memintro[site]&.native_callers&.each do |caller|
          names = caller.frames.map { |frame| frame[/\A[^(]+/].sub(/\.so\b.*/, "") }.uniq
          # Of equal ones, the innermost.
          names.each_with_index { |name, place| shares[name] += caller.share - (place * 1e-6) }
        end
        shares.max_by(&:last)&.first
      end
    end
  end
end
