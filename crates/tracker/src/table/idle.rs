//! Which open plots may be about to close, or their arrays to become shorter.
//!
//! A plot of which little is left is not closed at once: the next blocks often come to where the last ones went. And a
//! sweep of Ruby's takes most blocks of a plot in a row: an array that followed would be copied for every few of them.
//! So a plot waits here until another one wants its place.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::leaf::PLOT_SHIFT;

const PLACES: usize = 256;

/// Plots with their addresses, each in the place that its address says.
#[derive(Debug)]
pub(super) struct Idle([AtomicUsize; PLACES]);

impl Idle {
    pub(super) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Notes the plot around `address` and answers the one that had its place.
    // Relaxed: who acts on an answer takes hold of the plot first.
    pub(super) fn wait(&self, address: usize) -> Option<usize> {
        let plot = address >> PLOT_SHIFT;
        let place = self.0.get(plot % PLACES)?;
        if place.load(Ordering::Relaxed) == plot {
            return None;
        }
        let before = place.swap(plot, Ordering::Relaxed);
        (before != plot && before != 0).then_some(before << PLOT_SHIFT)
    }
}
