//! Finds out what resident memory is for, from copies of the kernel's tables and of a frozen process.
//!
//! All of this but [`report`] runs in a forked child that must not allocate: every table is a slice of the caller's, and
//! nothing panics on what it reads. Memory is read through a closure that answers `None` where nothing can be read, so that
//! wrong pointers end a walk and nothing else.

pub mod arenas;
pub mod caches;
pub mod chunks;
pub mod claims;
pub mod lines;
pub mod maps;
pub mod owners;
pub mod report;
pub mod space;
pub mod strands;

/// Bytes of a page, as pagemap counts them.
pub const PAGE: usize = 4096;
