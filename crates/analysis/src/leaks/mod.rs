//! Finds blocks that nothing points to, by marking from roots.
//!
//! [`nodes`] is the list of all blocks, and finds the block that an address is in. [`mark`] reaches blocks from roots,
//! and tells those that nothing points to from those that only such blocks point to. [`unused`] says what of Ruby's own blocks
//! is out of use. [`groups`] sorts what was found. [`ranges`] joins ranges of addresses and goes around them.
//!
//! As in [`crate::account`], all but [`report`] runs in a forked child: every table is a slice of the caller's, nothing is allocated, and memory is read through a
//! trait, so that wrong pointers end nothing.

pub mod groups;
pub mod mark;
pub mod nodes;
pub mod ranges;
pub mod report;
pub mod unused;

#[cfg(test)]
mod tests;

/// Whether a file of code is one of memintro's own libraries.
#[must_use]
pub fn is_own_library(path: &[u8]) -> bool {
    [&b"/memintro.so"[..], b"/libmemintro_hook.so"].iter().any(|name| path.ends_with(name))
}
