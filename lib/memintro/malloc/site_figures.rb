# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "stacks"

module Memintro
  # Methods of {Memintro} that return call sites. {Memintro} is extended with them.
  module SiteFigures
    include Stacks

    # Visits all call sites of one instant. Costs about a microsecond for each.
    #
    # @param min_live_bytes [Integer] leave out those with less; 0: none
    # @yieldparam site [CallSite]
    # @return [nil, Enumerator] an enumerator without a block
    def each_call_site(min_live_bytes: 0, &block)
      Arguments.count(:min_live_bytes, min_live_bytes)
      return enum_for(:each_call_site, min_live_bytes: min_live_bytes) unless block

      call_sites.take.each(min_live_bytes: min_live_bytes, &block)
      nil
    end

    # Returns the top call sites.
    #
    # @param n [Integer, nil] how many; nil: all
    # @param by [Symbol] figure to sort by, one of {CallSite::FIGURES}
    # @param older_than_gcs [Integer, nil] count as live only blocks that outlived this number of GCs, and leave out
    #   sites without any: that shows what leaks, not caches that turn over. Visits every live block.
    # @param group [Symbol] sums over all sites of a `:file`, `:gem`, `:method`, or `:app`, the innermost line of the
    #   application; `:stack`, as {Memintro.stacks}. `:method`, `:app` and `:stack` need a `stack_depth` of at least 2.
    # @return [List<CallSite>] greatest first
    # @raise [ArgumentError, TypeError]
    # @raise [Error] if there are no stacks to group by
    def top(n = 20, by: default_figure, older_than_gcs: nil, group: :line)
      sites = call_sites
      Arguments.count(:n, n, optional: true)
      Arguments.count(:older_than_gcs, older_than_gcs, most: CallSite::MOST_AGE, optional: true)
      by = untracked { Arguments.choice(:by, by, CallSite::FIGURES) }
      group = untracked { Arguments.choice(:group, group, SiteGroups::ALL) }
      unless group == :line
        return top_groups(n, by, group) unless older_than_gcs

        raise ArgumentError, "group is #{group.inspect}; with older_than_gcs it must be :line"
      end

      sites.take(most: older_than_gcs ? nil : n, by: by).top(n, by: by, older_than_gcs: older_than_gcs)
    end

    # Returns one call site by its name, or by the end of its name, beginning at a folder or file.
    #
    # @param name [String] such as `"leak.rb:12"`, `"app/models/user.rb:7"`, `"(gc)"`
    # @return [CallSite, nil] nil if there is none
    # @raise [AmbiguousNameError] if several names end so and none is exactly that
    def [](name)
      call_sites.take.find(Arguments.text(:name, name))
    end

    private

    def call_sites
      MainRactor.only
      Loader.need(:CallSites, :SiteGroups)
      CallSites
    end
  end
end
