//! Ruby 4.0: instance variables of objects other than plain ones are in internal objects of their own, "fields"; and ages of
//! objects are in the record of the page. Known from its headers and sources, and from 4.0.5.

use super::{Atlas, Data, Dump, Kinds, Shapes, ruby_3_4};

pub(super) const RUBY: Atlas = Atlas {
    version: (4, 0),
    has_ages_in_record: true,
    variables_aside: 0,
    embeds: 1 << 16,
    embeds_if_set: false,
    shapes: Some(Shapes { number: (1 << 19) - 1, too_complex: 1 << 27, has_object_id: 1 << 26 }),
    data: Data::VariablesThenType,
    old_words_of_mutex: Some((8, 24)),
    kinds: Kinds { call_info: 10, call_cache: 11, fields: Some(13) },
    dump: Dump { has_shapes: true, has_shapes_of_internals: false },
    ..ruby_3_4::RUBY
};
