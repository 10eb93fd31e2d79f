//! Reads dumps of Ruby's heap, memintro's and those of `ObjectSpace.dump_all`, and answers who holds what.
//!
//! [`read`] parses NDJSON, [`graph`] keeps objects and references, and the other modules answer one question each.
//! ANSWERS.md beside this crate describes the answers' JSON.

pub mod graph;
mod grow;
pub mod intern;
pub mod kinds;
pub mod pages;
pub mod read;
pub mod tally;
