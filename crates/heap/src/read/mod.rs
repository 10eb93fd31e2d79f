//! Reads a dump: from a file or a stream, through the lines in it, to batches of records.

pub mod batch;
mod fast;
mod field;
pub mod line;
pub mod lines;
pub mod load;
pub mod source;
mod words;

/// The parts of each line that a reader needs. Fewer parts are faster to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// References, for an object graph.
    pub references: bool,
    /// The names of references.
    pub edges: bool,
    /// Values of strings, or the hashes that stand for them.
    pub values: bool,
    /// Lines where objects were allocated, and their generations.
    pub sites: bool,
}

/// A problem of a dump, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Byte of the dump; of a compressed one, byte of what it unpacks to.
    pub offset: u64,
    /// For a person.
    pub message: String,
    /// Whether nothing behind it was read.
    pub ends: bool,
}
