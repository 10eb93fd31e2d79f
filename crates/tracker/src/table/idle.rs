//! Which open plots may be about to close.
//!
//! A plot of which little is left is not closed at once: the next blocks often come to where the last ones went. It
//! waits here until another plot wants its place.

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
