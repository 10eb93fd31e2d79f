//! Ruby 3.4. Known from its headers and sources, and from Debian's 3.4.11.

use super::{Atlas, ruby_3_3};

pub(super) const RUBY: Atlas =
    Atlas { version: (3, 4), lists_finalizers: false, chilled: Some(3 << 14), ..ruby_3_3::RUBY };
