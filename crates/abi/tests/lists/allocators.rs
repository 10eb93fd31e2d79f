use super::*;

/// The allocators for Ruby.
pub(super) fn ruby() -> (&'static str, String) {
    let mut text = String::from(
        "# frozen_string_literal: true\n\n\
         # Made by `rake figures` from crates/abi/src/allocators.rs.\nmodule Memintro\n  \
         # The allocators that memintro knows besides that of the C library.\n  # @api private\n  \
         module Allocators\n    \
         # What the name of the library's file begins with, how the names of files to preload go on, and the figures\n    \
         # which, with these factors, add up to the bytes that it has from the kernel.\n    \
         Allocator = Struct.new(:library, :endings, :held)\n    ALL = {\n",
    );
    let rows: Vec<String> = ALLOCATORS
        .iter()
        .map(|Allocator { name, library, endings, held, .. }| {
            let held: Vec<String> =
                held.iter().map(|(figure, factor)| format!("{figure}: {factor}")).collect();
            format!(
                "      {name}: Allocator.new({library:?}, %w[{}], {{ {} }})",
                endings.join(" "),
                held.join(", ")
            )
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
