//! Types of objects, as Ruby's public headers have them (value_type.h).

use rb_sys::ruby_value_type as of_ruby;

macro_rules! types {
    ($($name:ident = $of_ruby:ident;)*) => {
        $(pub(crate) const $name: usize = of_ruby::$of_ruby as usize;)*
    };
}

types! {
    T_NONE = RUBY_T_NONE;
    T_OBJECT = RUBY_T_OBJECT;
    T_CLASS = RUBY_T_CLASS;
    T_MODULE = RUBY_T_MODULE;
    T_FLOAT = RUBY_T_FLOAT;
    T_STRING = RUBY_T_STRING;
    T_REGEXP = RUBY_T_REGEXP;
    T_ARRAY = RUBY_T_ARRAY;
    T_HASH = RUBY_T_HASH;
    T_STRUCT = RUBY_T_STRUCT;
    T_BIGNUM = RUBY_T_BIGNUM;
    T_FILE = RUBY_T_FILE;
    T_DATA = RUBY_T_DATA;
    T_MATCH = RUBY_T_MATCH;
    T_COMPLEX = RUBY_T_COMPLEX;
    T_RATIONAL = RUBY_T_RATIONAL;
    T_SYMBOL = RUBY_T_SYMBOL;
    T_IMEMO = RUBY_T_IMEMO;
    T_NODE = RUBY_T_NODE;
    T_ICLASS = RUBY_T_ICLASS;
    T_ZOMBIE = RUBY_T_ZOMBIE;
    T_MOVED = RUBY_T_MOVED;
}

/// The bits of an object's flags that are its type.
pub(crate) const MASK: usize = of_ruby::RUBY_T_MASK as usize;

/// Names of the types, as in Ruby's headers.
const NAMES: [&str; MASK + 1] = [
    "T_NONE",
    "T_OBJECT",
    "T_CLASS",
    "T_MODULE",
    "T_FLOAT",
    "T_STRING",
    "T_REGEXP",
    "T_ARRAY",
    "T_HASH",
    "T_STRUCT",
    "T_BIGNUM",
    "T_FILE",
    "T_DATA",
    "T_MATCH",
    "T_COMPLEX",
    "T_RATIONAL",
    "T_0x10",
    "T_NIL",
    "T_TRUE",
    "T_FALSE",
    "T_SYMBOL",
    "T_FIXNUM",
    "T_UNDEF",
    "T_0x17",
    "T_0x18",
    "T_0x19",
    "T_IMEMO",
    "T_NODE",
    "T_ICLASS",
    "T_ZOMBIE",
    "T_MOVED",
    "T_0x1f",
];

/// The name of a type, as in Ruby's headers.
pub(crate) fn name(kind: usize) -> &'static str {
    NAMES.get(kind & MASK).copied().unwrap_or_default()
}
