# frozen_string_literal: true

require_relative "../support/arguments"

module Memintro
  # Reading whole stacks, as methods of {Memintro}.
  module Stacks
    # Returns the whole stacks that hold most. Each is a {CallSite} with its figures and its {CallSite#stack}.
    #
    # @param limit [Integer, nil] how many; nil: all
    # @param site [CallSite, String, nil] only those of this line, by its site or its name; nil: of all
    # @param by [Symbol] figure to sort by, one of {CallSite::FIGURES}
    # @return [List<CallSite>] greatest first
    # @raise [ArgumentError, TypeError]
    # @raise [Error] unless tracking was started with a `stack_depth` of at least 2
    # @raise [AmbiguousNameError]
    # @example
    #   Memintro.start(stack_depth: 16)
    #   Memintro.stacks(3, site: "app/models/user.rb:7").each { |site| puts site.stack }
    def stacks(limit = 20, site: nil, by: default_figure)
      call_sites
      Arguments.count(:limit, limit, optional: true)
      by = untracked { Arguments.choice(:by, by, CallSite::FIGURES) }
      site = site.is_a?(CallSite) ? site : self[site] || (return List.new([])) if site
      stacks_of(site).top(limit, by: by)
    end

    private

    def stacks_of(site)
      need_stacks
      all = call_sites.take_stacks
      return all unless site

      all.only do |row|
        row[SiteRow::KIND] == site.kind && row[SiteRow::LINENO] == site.lineno.to_i &&
          row[SiteRow::NAME] == (site.path || site.name)
      end
    end

    def need_stacks
      return if Native.stack_depth > 1 || Brake.on?

      raise Error, "call sites are lines here; Memintro.start(stack_depth: 16) tells whole stacks apart"
    end

    # The top of groups of sites.
    def top_groups(limit, by, group)
      return stacks(limit, by: by) if group == :stack

      need_stacks if SiteGroups::STACKS.include?(group)
      all = Native.stack_depth > 1 ? call_sites.take_stacks : call_sites.take
      all.grouped(group, configuration.app_root).top(limit, by: by)
    end
  end
end
