# frozen_string_literal: true

module Memintro
  module Control
    # JSON reports of several processes, made into one: a call site's figures are summed up over all of them. Workers
    # that were forked from one master run the same lines.
    module Family
      # Figures that are a maximum, not a sum.
      GREATEST = %w[max_lifespan].freeze
      private_constant :GREATEST

      # @param reports [Array<Hash>] parsed, the master's first
      # @return [Hash] a report
      def self.sum(reports)
        sites = {}
        reports.each do |report|
          report.fetch("call_sites").each do |site|
            key = site.values_at("kind", "name")
            sites[key] = sites.key?(key) ? add(sites[key], site) : site
          end
        end
        totals = reports.map { |report| report.fetch("totals") }.reduce { |sum, other| add(sum, other) }
        { **reports.first, "totals" => totals, "call_sites" => sites.values }
      end

      # @return [Hash] figures added up; what is no figure is the first's
      def self.add(one, other)
        one.to_h do |name, value|
          second = other[name]
          next [name, value] unless value.is_a?(Numeric) && second.is_a?(Numeric) && name != "lineno"

          [name, GREATEST.include?(name) ? [value, second].max : value + second]
        end
      end
      private_class_method :add
    end
  end
end
