//! What is read from the VM inside malloc, and under which conditions.
//!
//! Rule: everything here may run on any thread at any moment, so it allocates nothing, takes no lock, and asks the VM
//! only after the gate: an execution context of this thread's own, then the GVL, then no collection going on.

mod context;
mod frames;

use memintro_abi::VmSource;

/// What the hook is lent. Call [`prepare`] first.
pub(crate) static SOURCE: VmSource = VmSource { frame: frames::frame, generation: frames::generation };

/// Looks up what this Ruby offers. Called once, under the GVL, outside malloc.
pub(crate) fn prepare() {
    context::prepare();
    frames::prepare();
}
