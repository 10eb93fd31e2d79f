//! memintro's Ruby extension: the only place that knows both Ruby and the hook.

mod hook_link;
mod ruby_api;
mod symbols;
mod vm;

use magnus::{Error, Ruby};

/// Called by Ruby when it loads `memintro.so`. Defines classes and does nothing else.
#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    ruby_api::init(ruby)
}
