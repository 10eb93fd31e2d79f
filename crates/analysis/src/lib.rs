//! What can be made of memintro's figures without a VM: plain Rust over records and files.
//!
//! The extension fills [`sites`] (call sites with their texts, from the hook's records) and [`heap`] (what a walk over
//! Ruby's heap has found). [`estimates`] says how unsure sampled figures are, [`json`] writes snapshots and reports of all that
//! into a [`buffer`]: no part of it makes an object of Ruby's or needs Ruby's lock. [`raw_dump`] reads what a process left
//! that died without a report.

pub mod buffer;
pub mod estimates;
pub mod heap;
pub mod json;
pub mod raw_dump;
pub mod sites;
