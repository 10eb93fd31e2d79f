//! memintro's Ruby extension: the only place that knows both Ruby and the hook.
#![allow(
    missing_docs,
    reason = "the init macro exports one undocumented C symbol; nothing else here is public"
)]

mod account;
mod atlas;
#[cfg(target_os = "linux")]
mod built_for;
mod callers;
mod contents;
mod copy;
mod heap;
mod heap_dump;
mod hook_link;
mod leaks;
mod lookup;
mod mark_bits;
mod marked_objects;
mod markings;
mod measure;
mod moving_threads;
mod native_stacks;
mod object_events;
mod object_words;
mod objects;
mod process;
mod reserve;
mod ruby_api;
mod sampled_objects;
mod signals;
mod symbols;
mod unfreed;
mod vm;

use magnus::{Error, Ruby};

/// Called by Ruby when it loads `memintro.so`. Defines classes.
#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    ruby_api::init(ruby)?;
    moving_threads::follow();
    Ok(())
}
