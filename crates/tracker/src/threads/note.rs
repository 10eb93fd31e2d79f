//! Writes an event down while the gate is closed. See [`super`].

use core::sync::atomic::Ordering;

use super::{CLOSED, PLACE_SHIFT, ThreadState, Threads, places, words};
use crate::deferred::Event;
use crate::lock::{SLEEP_NS, sleep};
use crate::stack;

/// The result of writing an event down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It was written down.
    Down,
    /// The gate is open, so the event can be recorded.
    GateIsOpen,
    /// There is no room for it.
    Lost,
}

impl Threads {
    /// Writes an event down if the gate is closed. It does not wait, except that it sleeps for a moment if very many
    /// events have been written down, or if the thread that records them does not catch up: so that it can finish.
    #[cold]
    pub fn note(&self, own: &ThreadState, event: &Event, text: &[u8]) -> Noted {
        let before = if own.is_noting() { own.noting.load(Ordering::Relaxed) } else { 0 };
        own.noting.store(if before == 0 { stack::pointer() } else { before }, Ordering::Relaxed);
        let noted = self.write_down(event, text);
        own.noting.store(before, Ordering::Relaxed);
        noted
    }

    fn write_down(&self, event: &Event, text: &[u8]) -> Noted {
        let memory = self.deferred.memory();
        let text_words = text.len().div_ceil(8) as u32;
        let mut gate = self.gate.load(Ordering::Acquire);
        let is_opening = self.opening.load(Ordering::Relaxed);
        if let Some(sleeps) = self.deferred.sleeps_before(places(gate)).or(is_opening.then_some(1)) {
            sleep(SLEEP_NS * libc::c_long::from(sleeps));
            gate = self.gate.load(Ordering::Acquire);
        }
        loop {
            if gate & CLOSED == 0 {
                return Noted::GateIsOpen;
            }
            let (place, word) = (places(gate), words(gate));
            if memory.is_null()
                || place >= self.deferred.places()
                || word.saturating_add(text_words) > self.deferred.text_words()
            {
                return Noted::Lost;
            }
            let next = gate.wrapping_add(1 << PLACE_SHIFT).wrapping_add(u64::from(text_words));
            // AcqRel: events of one address are written down in the order in which they happened.
            match self.gate.compare_exchange_weak(gate, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if self.deferred.memory() == memory => {
                    let is_written = self.deferred.write(memory, place, word, text, event);
                    return if is_written { Noted::Down } else { Noted::Lost };
                }
                // The reader did not wait for this event.
                Ok(_) => return Noted::Lost,
                Err(now) => gate = now,
            }
        }
    }
}
