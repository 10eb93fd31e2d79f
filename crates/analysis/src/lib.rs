//! What can be made of memintro's figures without a VM: plain Rust over records and files.

pub mod raw_dump;
