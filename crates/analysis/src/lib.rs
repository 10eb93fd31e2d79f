//! Processes memintro's figures without a VM, from records and files.
//!
//! The extension fills [`sites`] (call sites with their texts, from the hook's records) and [`heap`] (what a walk
//! over Ruby's heap has found). [`estimates`] computes the errors of sampled figures, and [`json`] writes snapshots
//! and reports into a [`buffer`], [`text`] the report for people. None of it makes a Ruby object or needs the GVL.
//! [`account`] tells what resident memory is for, and [`leaks`] finds blocks that nothing points to, each with a `report` of
//! what a frozen copy has found. [`raw_dump`] reads the dump of a process that died without a report.

pub mod account;
pub mod advice;
pub mod answers;
pub mod buffer;
pub mod changes;
pub mod copy_end;
pub mod copy_lines;
pub mod estimates;
pub mod figures;
pub mod formats;
pub mod heap;
pub mod json;
pub mod leaks;
pub mod page;
pub mod raw_dump;
pub mod report;
pub mod sites;
pub mod text;
pub mod value;
