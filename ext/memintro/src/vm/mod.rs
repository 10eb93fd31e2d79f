//! Reads from the VM inside malloc, under the following conditions.
//!
//! Rule: everything here may run on any thread at any moment, so it allocates nothing, takes no lock, and asks the VM
//! only after the gate: an execution context of this thread's own, then the GVL, then no collection going on.

mod accessors;
mod context;
mod control_frames;
mod evacuation;
mod frames;
mod functions;
pub(crate) mod machine_stack;
mod marks;
mod probe;
mod stacks;
mod words;

pub(crate) use frames::{frame, frame_of_event, locate};
pub(crate) use probe::Probe;
pub(crate) use words::{are_read as reads_words, check_lock, find as find_words};

use memintro_abi::VmSource;

/// The words that are lent to the hook; `None` if [`prepare`] has not found all of them.
pub(crate) fn source() -> Option<VmSource> {
    marks::note();
    Some(VmSource {
        frame: frames::frame,
        locate: frames::locate,
        generation: functions::get()?.gc_count,
        stack_key: stacks::stack_key,
        stack: stacks::stack,
        stack_end: machine_stack::stack_end,
        words: Some(&words::WORDS),
        stack_words: Some(&words::WORDS),
    })
}

/// Looks up what this Ruby offers. Called once, under the GVL, outside malloc. Returns whether lines can be read.
pub(crate) fn prepare() -> bool {
    context::prepare();
    marks::prepare();
    functions::prepare()
}

/// Has the VM call `last` when the VM ends.
pub(crate) fn at_exit(last: unsafe extern "C" fn(*mut rb_sys::ruby_vm_t)) {
    if let Some(vm) = functions::get() {
        // SAFETY: under the GVL; the function lives as long as this library, which Ruby never unloads.
        unsafe { (vm.at_exit)(last) };
    }
}

/// Number of collections so far.
pub(crate) fn generation(ruby: &magnus::Ruby) -> Result<usize, magnus::Error> {
    match gc_count() {
        Some(count) => Ok(count),
        None => {
            use magnus::prelude::*;
            ruby.class_object().const_get::<_, magnus::RModule>("GC")?.funcall("count", ())
        }
    }
}

/// The same, if [`prepare`] has found the function for it.
pub(crate) fn gc_count() -> Option<usize> {
    // SAFETY: reads one word of the VM.
    functions::get().map(|vm| unsafe { (vm.gc_count)() })
}

/// Names of functions that this Ruby would need so that its lines can be read.
pub(crate) fn missing() -> Vec<&'static str> {
    functions::missing()
}

/// The unused part of the calling thread's stack of Ruby values.
pub(crate) fn unused_stack() -> Option<(usize, usize)> {
    control_frames::opened()?;
    let context::Context::At(context) = context::current() else { return None };
    let word = |at: usize| std::ptr::with_exposed_provenance::<usize>(at);
    // SAFETY: the third word of a context is its innermost frame, whose second word is the end of the values in use;
    // `opened` says that this Ruby has such frames.
    let (innermost, used) = unsafe {
        let innermost = context.cast::<usize>().add(2).read();
        (innermost, word(innermost + size_of::<usize>()).read())
    };
    (used < innermost).then_some((used, innermost))
}

/// Opens the short cut to the running line, if this Ruby's frames have the expected layout. To be called by a C
/// method that code outside of any method calls.
pub(crate) fn open_short_cut() {
    control_frames::prepare();
}

/// Finds out how to detect that this Ruby moves young objects into malloc, if it does that. Under the GVL, outside
/// malloc.
pub(crate) fn tell_evacuations() {
    evacuation::prepare();
}

/// The calling thread's execution context, and words from a frame of its stack to its caller's; `None` if this Ruby does
/// not tell. Under the GVL, outside malloc.
pub(crate) fn own_context() -> Option<(usize, usize)> {
    if !prepare() {
        return None;
    }
    match (context::current(), control_frames::opened()) {
        (context::Context::At(context), Some(stride)) => Some((context as usize, stride)),
        _ => None,
    }
}
