//! A report: the figures of one process, or of several added up, at one instant. All formats are written from it.
//!
//! It comes from this process's records, from JSON ([`Report::read`]), from a raw dump ([`Report::of_dump`]), or from
//! several reports ([`Report::sum`]).

mod dump;
mod json;
mod process;
mod read;
mod sum;

use memintro_abi::Figures;

pub use dump::NativeNames;
pub use process::{Fact, Process};
pub use read::Error;
pub use read::rows::record;

use crate::sites::Sites;

/// The version of the JSON. It changes when a key changes its meaning or goes away.
pub const LAYOUT: u64 = 1;

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whose figures these are.
    pub process: Process,
    /// The figures of the process.
    pub totals: Figures,
    /// The call sites, each line once.
    pub sites: Sites,
    /// The call sites as they were kept: each whole stack by itself. `None`: they are lines.
    pub stacks: Option<Sites>,
    /// Only blocks and objects that outlived so many collections count as live, and only sites with such are there. There
    /// are no totals then.
    pub older_than: Option<u32>,
    /// The folder that paths are relative to, if an answer says it.
    pub root: Option<String>,
}

impl Report {
    /// Whether objects were tracked. The call sites then are sorted by the bytes that blocks and objects retain, unless
    /// something else is asked for.
    #[must_use]
    pub fn default_figure(&self) -> &'static str {
        if self.sites.has_objects() { "retained_bytes" } else { "live_bytes" }
    }

    /// What formats of stacks are written from: whole stacks, or else lines.
    #[must_use]
    pub fn whole(&self) -> &Sites {
        self.stacks.as_ref().unwrap_or(&self.sites)
    }

    /// The same, to be sorted and cut.
    pub fn whole_mut(&mut self) -> &mut Sites {
        self.stacks.as_mut().unwrap_or(&mut self.sites)
    }
}

#[cfg(test)]
mod tests;
