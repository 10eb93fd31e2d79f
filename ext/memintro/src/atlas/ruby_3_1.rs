//! Ruby 3.1. Known from its headers and sources, and from Debian's 3.1.2.

use super::{Atlas, Data, Dump, Kinds};

pub(super) const RUBY: Atlas = Atlas {
    version: (3, 1),
    page_bytes: 16 << 10,
    has_transient_heap: true,
    old: 3 << 5,
    has_ages: true,
    bitmaps: 5,
    has_ages_in_record: false,
    lists_finalizers: true,
    variables_aside: 1 << 10,
    embeds: 1 << 13,
    embeds_if_set: true,
    variables: 3,
    shapes: None,
    data: Data::TypeThenMark,
    embeds_hashes: false,
    hash_default: 3,
    chilled: None,
    kinds: Kinds { call_info: 11, call_cache: 12, fields: None },
    match_regexp: 4,
    old_words_of_mutex: None,
    has_value_behind_group: true,
    dump: Dump { has_shapes: false, has_shapes_of_internals: false },
};
