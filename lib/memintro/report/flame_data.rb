# frozen_string_literal: true

require_relative "../support/json_text"
require_relative "../support/names"
require_relative "stack_table"

module Memintro
  module Report
    # The data of the page that {Html} writes, as compact JSON: a prefix tree in columns, so that 100,000 stacks stay
    # small.
    #
    # - `paths`: `[whole, short, family]` of each file; `frames`: path, line and label (or 0) of each frame;
    # - `depth` and `frame` of each node, parents before their children: the last node before it with a smaller depth is
    #   a node's parent;
    # - `at`: the node of each stack, less that of the stack before; `figures`: the columns of {StackTable::FIGURES};
    #   `variances`: of these, where some are estimates.
    # @api private
    class FlameData
      # What a file belongs to: the application, a gem, Ruby's own library, or no line of Ruby.
      FAMILIES = { app: 0, gem: 1, ruby: 2, native: 3 }.freeze
      GEM = %r{/(?:bundler/)?gems/[^/]+-[^/]+/}n
      RUBY = %r{/ruby/(?:\d+\.\d+\.\d+|vendor_ruby|site_ruby)/|\A<internal:}n
      private_constant :FAMILIES, :GEM, :RUBY

      # @param table [#frames, #rows] see {StackTable}
      # @param head [Hash] what the page says of the process, put in front
      # @param app_root [String, nil]
      def initialize(table, head, app_root: nil)
        @table = table
        @head = head
        @names = Names.new(app_root)
      end

      # @return [String] JSON that is harmless within a `script` element
      def json
        # In JSON it stands within texts only.
        JsonText.line({ **@head, paths: paths, frames: frames, **tree }).gsub("<", "\\u003c")
      end

      private

      def frames
        @table.frames.map { |path, line, label| [known.fetch(path), line, label ? Names.printable(label) : 0] }
      end

      def known
        @known ||= @table.frames.map(&:first).uniq.each_with_index.to_h
      end

      def paths
        lines = @table.frames.to_h { |path, line, _| [path, line] }
        known.keys.map { |path| [Names.printable(path), @names.shortened(path), family(path.b, lines[path])] }
      end

      def family(path, line)
        return FAMILIES[:native] if line.zero?
        return FAMILIES[:gem] if path.match?(GEM)

        FAMILIES[path.match?(RUBY) ? :ruby : :app]
      end

      # Sorted stacks visit the nodes of the tree in order: each begins with what it has in common with the one before.
      def tree
        columns = { depth: [], frame: [], at: [], figures: StackTable::FIGURES.map { [] }, variances: nil }
        before = []
        last = 0
        @table.rows.sort_by(&:first).each do |row|
          last = append(columns, row, before, last)
          before = row.first
        end
        columns.compact
      end

      def append(columns, row, before, last)
        stack = row.first
        common = 0
        common += 1 while common < stack.size && stack[common] == before[common]
        common.upto(stack.size - 1) do |depth|
          columns[:depth] << depth
          columns[:frame] << stack[depth]
        end
        node = columns[:depth].size - 1
        columns[:at] << (node - last)
        columns[:figures].each_with_index { |column, index| column << row[index + 1] }
        append_variances(columns, row[StackTable::VARIANCES])
        node
      end

      # Rows before the first estimate are exact.
      def append_variances(columns, variances)
        return unless variances || columns[:variances]

        columns[:variances] ||= Array.new(StackTable::FIGURES.size) { Array.new(columns[:at].size - 1, 0) }
        columns[:variances].each_with_index { |column, index| column << (variances ? variances[index].to_f.round : 0) }
      end
    end
  end
end
