//! Ruby 3.3: slots of several sizes, and shapes. Known from its headers and sources, and from Debian's 3.3.8.

use super::{Atlas, Dump, Shapes, ruby_3_1};

pub(super) const RUBY: Atlas = Atlas {
    version: (3, 3),
    page_bytes: 64 << 10,
    has_transient_heap: false,
    old: 1 << 5,
    has_ages: false,
    // Not all versions tell of the sixth.
    bitmaps: 6,
    variables: 2,
    shapes: Some(Shapes { number: 0xffff_ffff, too_complex: 0, has_object_id: 0 }),
    embeds_hashes: true,
    hash_default: 2,
    match_regexp: 3,
    dump: Dump { has_shapes: true, has_shapes_of_internals: true },
    ..ruby_3_1::RUBY
};
