//! Memory that the host and the copy share: how far the copy has come.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// All zero at the beginning.
#[repr(C)]
#[derive(Debug)]
pub(super) struct State {
    /// Grows with each step. If it stands still although nothing is waited for, the copy hangs.
    pub(super) beat: AtomicU64,
    pub(super) objects: AtomicU64,
    /// Written to the tool.
    pub(super) bytes: AtomicU64,
    /// See [`Stage`].
    stage: AtomicU32,
    /// The status of the tool's end, as `waitpid` has it; -1 before.
    pub(super) tool: AtomicI32,
    /// Of the data object whose functions run now, what tells its type; 0 while none do.
    pub(super) data_type: AtomicUsize,
    /// A number of `errno`: why the tool could not be started.
    pub(super) error: AtomicI32,
}

/// What the copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    /// It has not begun.
    Made = 0,
    /// It walks over the heap.
    Walking = 1,
    /// It waits for the tool to take lines.
    Writing = 2,
    /// It has written the last line, and waits for the tool's end.
    Written = 3,
    /// The tool has ended.
    Done = 4,
}

impl State {
    pub(super) fn set(&self, stage: Stage) {
        self.stage.store(stage as u32, Ordering::Release);
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Made,
            1 => Stage::Walking,
            2 => Stage::Writing,
            3 => Stage::Written,
            _ => Stage::Done,
        }
    }
}
