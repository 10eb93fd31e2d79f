//! What changed between two snapshots, and what grew over several, as texts and pages for people.

mod account;
mod change;
mod diff;
mod page;
mod spread;
mod trend;

pub use change::{Amount, Change, Doubts, Measure, Number};
pub use diff::{Diff, Section};
pub use trend::{Series, Trend};

/// What texts and pages depend on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rows of each table; `None`: all.
    pub top: Option<usize>,
    /// Whether colours are wanted.
    pub colour: bool,
    /// The folder relative to which names of files are shown.
    pub root: Option<Vec<u8>>,
}
