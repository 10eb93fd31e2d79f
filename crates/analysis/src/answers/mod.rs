//! What others may write: the answers of the control socket, reports and snapshots. Each has one definition, a [`Kind`]
//! with the fields, their types and their bounds. [`read()`] checks a text by it while it parses, so that a hostile text
//! takes no more memory than a valid one. The sender of an answer picks its fields by the same definition;
//! docs/protocol.md has it in words.
//!
//! A wrong field is refused by name, and an unknown field is left out.

mod commands;
mod header;
mod kinds;
mod read;
mod report;
mod snapshot;
#[cfg(test)]
mod tests;

pub use commands::{COMMANDS, Command, command};
pub use header::{Header, NoHeader, check_pid, header};
pub use kinds::{Field, Kind, LONGEST_TEXT};
pub use read::{Json, Maker, Wrong, read, read_or_null};
pub use snapshot::{SNAPSHOT, head};

pub(crate) use kinds::{count, flag, name, pid, signed, word};
pub(crate) use read::{Place, Reading, read_by};
pub(crate) use report::{OLD_SITES, REPORT};
pub(crate) use snapshot::layout;
