//! Counts blocks whose birth was written down but not recorded yet. Their frees must be recorded, whether they are
//! sampled or not.

use core::sync::atomic::{AtomicU32, Ordering};

/// Blocks that were written down, and that the filter of sampled blocks does not contain yet.
#[unsafe(link_section = ".bss.path")]
pub(crate) static PENDING: AtomicU32 = AtomicU32::new(0);

/// Whether a free must be recorded whatever the filter says.
#[inline(always)]
pub(crate) fn is_pending() -> bool {
    // Acquire: a thread that reads 0 finds the blocks in the filter.
    PENDING.load(Ordering::Acquire) != 0
}

/// Counts one block, until this is dropped or, after [`Pending::goes_on`], until the block is recorded.
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

    /// The block has been recorded.
    pub(crate) fn end() {
        drop(Self(()));
    }

    /// Called in a forked child, where no other thread can have written anything down.
    pub(crate) fn forget_all() {
        PENDING.store(0, Ordering::Release);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::Release);
    }
}
