//! Reads dumps of Ruby's heap, memintro's and those of `ObjectSpace.dump_all`, and answers questions about
//! them.
//!
//! [`read`] parses NDJSON, [`graph`] keeps objects and references, [`reach`] and [`dominators`] find holders,
//! and the other modules answer one question each for [`command`]. ANSWERS.md beside this crate describes the
//! answers' JSON.

mod also;
pub mod answer;
mod class_names;
pub mod command;
pub mod command_line;
pub mod diff;
pub mod dominators;
pub mod graph;
mod grow;
pub mod holders;
pub mod html;
pub mod intern;
mod keys;
pub mod kinds;
mod lasting;
pub mod lists;
pub mod options;
mod output;
pub mod pages;
pub mod paths;
pub mod reach;
pub mod read;
pub mod select;
pub mod snapshot;
pub mod steps;
pub mod strings;
pub mod tally;
mod values;
pub mod ways;
