//! Becoming busy in the common case, without a call of another function.

use core::sync::atomic::{Ordering, compiler_fence};

use super::{STACK_BYTES, ThreadState, Threads};
use crate::stack;

impl Threads {
    /// As [`Threads::enter`], but without a guard: [`ThreadState::leave`] ends it, or a function that the caller ends
    /// with ([`super::Busy::taken_over`]). `false` wherever anything is unusual ([`super::Settle::is_unusual`]). The caller
    /// then calls `enter`.
    #[inline(always)]
    #[must_use]
    pub fn enter_fast(&self, state: &ThreadState) -> bool {
        self.enter_unless(state, || u64::from(self.unusual.load(Ordering::Relaxed)))
    }

    /// The same for events that are not malloc's: it only needs an open gate and no fences.
    #[inline(always)]
    #[must_use]
    pub fn enter_if_open(&self, state: &ThreadState) -> bool {
        self.enter_unless(state, || u64::from(self.fences.load(Ordering::Relaxed)))
    }

    /// Unless the gate is closed, or this is not 0.
    #[inline(always)]
    fn enter_unless(&self, state: &ThreadState, other: impl FnOnce() -> u64) -> bool {
        if state.is_busy() {
            return false;
        }
        stack::touch::<STACK_BYTES>();
        state.busy.store(stack::pointer(), Ordering::Relaxed);
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        // Acquire: what a pauser has changed before it opened the gate is seen.
        let is_in = self.gate.load(Ordering::Acquire) | other() == 0;
        if !is_in {
            state.leave();
        }
        is_in
    }
}
