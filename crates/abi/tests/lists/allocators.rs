use super::*;

/// The allocators for Ruby.
pub(super) fn ruby() -> (&'static str, String) {
    let mut text = String::from(
        "# frozen_string_literal: true\n\n\
         # Made by `rake figures` from crates/abi/src/allocators.rs.\nmodule Memintro\n  \
         # The allocators that memintro knows besides that of the C library.\n  # @api private\n  \
         module Allocators\n    \
         # The beginning of the library's file name, and the rest of the names of files to preload.\n    \
         Allocator = Struct.new(:library, :endings)\n    ALL = {\n",
    );
    let rows: Vec<String> = ALLOCATORS
        .iter()
        .map(|Allocator { name, library, endings, .. }| {
            format!("      {name}: Allocator.new({library:?}, %w[{}])", endings.join(" "))
        })
        .collect();
    write!(text, "{}\n    }}.each_value(&:freeze).freeze\n", rows.join(",\n")).unwrap();
    let names: Vec<&str> = ALLOCATORS.iter().map(|allocator| allocator.name).collect();
    let [rest @ .., last] = names.as_slice() else { unreachable!() };
    write!(
        text,
        "    # Their names, for sentences.\n    NAMES = \"{} and {last}\"\n  end\nend\n",
        rest.join(", ")
    )
    .unwrap();
    ("lib/memintro/support/allocators.rb", text)
}
