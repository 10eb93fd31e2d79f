//! What can be made of memintro's figures without a VM: plain Rust over records and files.

pub mod buffer;
pub mod estimates;
pub mod heap;
pub mod json;
pub mod raw_dump;
pub mod sites;
