# frozen_string_literal: true

require_relative "call_site"
require_relative "../support/names"

module Memintro
  # Sums of call sites over what they have in common: a file, a gem, a method, or the line of the application that led
  # to them.
  # @api private
  class SiteGroups
    # Groupings of sites. `:line` and `:stack` leave sites ungrouped.
    ALL = %i[line stack file gem method app].freeze
    # Groups that need whole stacks.
    STACKS = %i[stack method app].freeze
    # Names of what is no gem.
    APP = "(app)"
    STDLIB = "(stdlib)"
    # For stacks without a line of the application.
    OUTSIDE = "(no line of the application)"
    # The prefix of a block's label before its method.
    INNER = /\A(?:(?:block(?: \(\d+ levels\))?|rescue|ensure) in )+/
    private_constant :INNER

    # @param by [Symbol] of {ALL}
    # @param app_root [String, nil]
    def initialize(by, app_root = nil)
      @by = by
      @names = Names.new(app_root)
    end

    # @param rows [Array<Array>] see {SiteRow}
    # @return [Array<Array>] a row for each group
    def rows(rows)
      rows.group_by { |row| key(row) }.map { |(kind, name, line), group| SiteRow.sum(group, kind, name, line) }
    end

    private

    # Kind, name and line of the group's row. Sites that are not lines of Ruby stay ungrouped.
    def key(row)
      return [row[SiteRow::KIND], row[SiteRow::NAME], 0] unless row[SiteRow::KIND] == :ruby

      path = row[SiteRow::NAME]
      case @by
      when :file then [:file, path, 0]
      when :gem then [:gem, owner(path), 0]
      when :method then [:method, method_name(row), 0]
      else app_line(row)
      end
    end

    def owner(path) = @names.gem(path) || (@names.standard?(path) ? STDLIB : APP)

    def method_name(row)
      path, _, label = row[SiteRow::STACK]&.first || [row[SiteRow::NAME]]
      label ? "#{label.sub(INNER, '')} (#{path})" : path
    end

    def app_line(row)
      stack = row[SiteRow::STACK] || [[row[SiteRow::NAME], row[SiteRow::LINENO]]]
      path, line = stack.find { |frame_path, _| owner(frame_path) == APP }
      path ? [:ruby, path, line] : [:app, OUTSIDE, 0]
    end
  end
end
