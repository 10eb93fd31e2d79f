//! The whole of Ruby's heap as lines of JSON, written by a frozen copy of this process.
//!
//! host ── [`crate::copy`] ──► the copy: walks the heap, writes lines ── pipe ──► `memintro-tool`, started by the copy.
//! The tool's answer (its standard output) and its complaints (standard error) come back through two pipes.
//!
//! From Rust: [`begin`] with a [`Question`] makes the copy; [`Dump::poll`] waits for a while without the GVL.
//! From Ruby: `Memintro::HeapCopy.ask(["heap", "holders", "-", …], redact:, seconds:) { |objects| … }` returns the
//! tool's standard output, can be interrupted, repeats a copy that came to nothing, and raises `HeapDumpError`.

pub(crate) mod edges;

use std::ffi::CString;

/// What is asked of the tool, which reads this process's heap from its standard input.
pub(crate) struct Question {
    /// Of the program, the first is its path.
    pub(crate) arguments: Vec<CString>,
    /// Leave out what strings hold.
    pub(crate) redact: bool,
    /// After so long, the copy and the tool are ended.
    pub(crate) seconds: u32,
}
