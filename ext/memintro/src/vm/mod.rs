//! What is read from the VM inside malloc, and under which conditions.
//!
//! Rule: everything here may run on any thread at any moment, so it allocates nothing, takes no lock, and asks the VM
//! only after the gate: an execution context of this thread's own, then the GVL, then no collection going on.

mod context;
mod control_frames;
mod evacuation;
mod frames;
mod functions;
mod probe;

use memintro_abi::VmSource;

/// What the hook is lent. Call [`prepare`] first.
pub(crate) static SOURCE: VmSource =
    VmSource { frame: frames::frame, locate: frames::locate, generation: frames::generation };

/// Looks up what this Ruby offers. Called once, under the GVL, outside malloc. Answers whether [`SOURCE`] can be lent.
pub(crate) fn prepare() -> bool {
    context::prepare();
    functions::prepare()
}

/// Has the VM call `last` when it ends.
pub(crate) fn at_exit(last: unsafe extern "C" fn(*mut rb_sys::ruby_vm_t)) {
    if let Some(vm) = functions::get() {
        // SAFETY: under the GVL; the function lives as long as this library, which Ruby never unloads.
        unsafe { (vm.at_exit)(last) };
    }
}

/// How many collections there were, if [`prepare`] has found out whom to ask.
pub(crate) fn gc_count() -> Option<usize> {
    // SAFETY: reads one word of the VM.
    functions::get().map(|vm| unsafe { (vm.gc_count)() })
}

/// Names of what this Ruby would have to have for its lines to be told.
pub(crate) fn missing() -> Vec<&'static str> {
    functions::missing()
}

/// Opens the short cut to "which line", if this Ruby's frames are what it takes them for. To be called by a C method
/// that code outside of any method calls.
pub(crate) fn open_short_cut() {
    control_frames::prepare();
}

/// Finds out how this Ruby's moves of young objects into malloc are told, if it has any. Under the GVL, outside malloc.
pub(crate) fn tell_evacuations() {
    evacuation::prepare();
}
