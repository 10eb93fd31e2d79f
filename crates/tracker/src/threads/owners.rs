//! How threads get their states, and give them back. See [`super`].

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::{ThreadState, Threads};
use crate::mmap;

impl Threads {
    /// Finds a state for the calling thread: one that a former thread had, else a new one. `None` when there is no
    /// memory.
    #[cold]
    pub fn acquire(&self) -> Option<NonNull<ThreadState>> {
        let mut next = self.first.load(Ordering::Acquire);
        while let Some(state) = NonNull::new(next) {
            // SAFETY: states are never unmapped.
            let state_ref = unsafe { state.as_ref() };
            // Acquire: the last owner's writes are seen.
            if state_ref.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
                && self.take_over(state_ref)
            {
                state_ref.is_of_this_thread();
                self.between_resets(|| state_ref.inherited.copy(&state_ref.traffic));
                return Some(state);
            }
            next = state_ref.next.load(Ordering::Acquire);
        }
        let state: NonNull<ThreadState> = mmap::map(size_of::<ThreadState>())?.cast();
        // SAFETY: freshly mapped zeroes are a valid state.
        let state_ref = unsafe { state.as_ref() };
        state_ref.owned.store(true, Ordering::Relaxed);
        state_ref.is_of_this_thread();
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            state_ref.next.store(first, Ordering::Relaxed);
            // Release: a thread that walks the list sees a complete state.
            match self.first.compare_exchange_weak(
                first,
                state.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(state),
                Err(now) => first = now,
            }
        }
    }

    /// Takes back the figures of an owner that does not exist in this process. `false`: not possible now.
    fn take_over(&self, state: &ThreadState) -> bool {
        if !state.left.load(Ordering::Relaxed) {
            return true;
        }
        let busy = self.enter(state);
        let is_in = busy.is_some();
        if is_in {
            self.take_back(state);
            state.left.store(false, Ordering::Relaxed);
        }
        drop(busy);
        if !is_in {
            state.owned.store(false, Ordering::Release);
        }
        is_in
    }

    /// Releases a state when its thread ends. Its counters are added to the shared ones.
    pub fn release(&self, state: &ThreadState) {
        match self.enter(state) {
            Some(busy) => {
                self.take_back(state);
                drop(busy);
                // Release: the next owner sees a clean state.
                state.owned.store(false, Ordering::Release);
            }
            // The thread that opens the gate does that.
            None => state.leaving.store(true, Ordering::Release),
        }
    }

    pub(super) fn take_back(&self, state: &ThreadState) {
        self.settle().flush(&state.counters);
        state.forget_owner();
    }
}
