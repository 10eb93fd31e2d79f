//! Texts and pages about the changes between two snapshots, and the growth over several.

mod account;
mod change;
mod diff;
mod page;
mod spread;
mod trend;

pub use change::{Amount, Change, Doubts, Measure, Number};
pub use diff::{Diff, Section};
pub use trend::{Series, Trend};

/// Options of texts and pages.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rows of each table; `None`: all.
    pub top: Option<usize>,
    /// Whether colours are wanted.
    pub colour: bool,
    /// The folder relative to which names of files are shown.
    pub root: Option<Vec<u8>>,
}
