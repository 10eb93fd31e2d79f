//! Blocks whose birth was written down and is not recorded yet: their frees must be recorded, whether they are sampled
//! or not.

use core::sync::atomic::{AtomicU32, Ordering};

/// Blocks that were written down and that the filter of sampled blocks does not know yet.
static PENDING: AtomicU32 = AtomicU32::new(0);

/// Whether a free must be recorded whatever that filter says.
#[inline(always)]
pub(crate) fn is_pending() -> bool {
    // Acquire: whoever sees that none is pending sees them in the filter.
    PENDING.load(Ordering::Acquire) != 0
}

/// One more, until it is dropped or, once it [`Pending::goes_on`], recorded.
#[derive(Debug)]
pub(crate) struct Pending(());

impl Pending {
    pub(crate) fn begin() -> Self {
        PENDING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    pub(crate) fn goes_on(self) {
        core::mem::forget(self);
    }

    /// It has been recorded.
    pub(crate) fn end() {
        drop(Self(()));
    }

    /// In a forked child, where nobody else can have written anything down.
    pub(crate) fn forget_all() {
        PENDING.store(0, Ordering::Release);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::Release);
    }
}
