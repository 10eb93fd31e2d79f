//! Call sites that are whole stacks.
//!
//! The VM names the innermost lines by a key, which the thread's cache knows mostly. Only where it does not, the lines are
//! asked for and interned. A stack that has no room any more counts for its line.

use core::ffi::c_void;

use memintro_abi::{
    Frame, FrameKind, ObjectFigures, SITE_BOOT, SITE_GC, SITE_OTHER, SiteRecord, StackFrame, Status, VmSource,
};
use memintro_tracker::lock::given_up;
use memintro_tracker::sites::{MOST_FRAMES, StackMemory};
use memintro_tracker::threads::ThreadState;

use crate::figures;
use crate::shared::SITES;

/// The site of a line that the VM has located.
pub(crate) fn line(frame: &Frame) -> u32 {
    match (frame.path.is_null(), frame.line) {
        (true, _) => SITE_OTHER,
        (false, 0) => SITE_BOOT,
        // SAFETY: the VM's path is terminated and stays in place while this thread is in malloc.
        (false, line) => unsafe { SITES.ruby(frame.path, line) }.unwrap_or(SITE_OTHER),
    }
}

/// The site of the stack that runs now, and the generation. The generation alone: no Ruby runs.
pub(crate) fn site(
    own: &ThreadState,
    vm: &VmSource,
    depth: u32,
    frame: &mut Frame,
) -> Result<(u32, u32), u32> {
    // SAFETY: the lender promises that it may be called from any thread, inside malloc; `frame` is valid.
    let kind = unsafe { (vm.stack_key)(&raw mut *frame, depth) };
    match kind {
        FrameKind::RUBY => {}
        FrameKind::GC => return Ok((SITE_GC, frame.generation)),
        _ => return Err(frame.generation),
    }
    let Some(memory) = own.stacks.memory(&SITES) else {
        // SAFETY: as above, and the frame was answered just now.
        unsafe { (vm.locate)(&raw mut *frame) };
        return Ok((line(frame), frame.generation));
    };
    let (key, detail, generation) = (frame.key, frame.detail, frame.generation);
    if key == 0 {
        return Ok((intern(memory, vm, depth, frame), generation));
    }
    let site = memory.sites.get(key, detail, generation, || {
        // What stands in where the interner's lock was not got in time must not stay.
        let given_up_before = given_up();
        let site = intern(memory, vm, depth, frame);
        (site, frame.key != 0 && given_up() == given_up_before)
    });
    Ok((site, generation))
}

/// The frames of a stack while it is visited.
struct Found<'a> {
    memory: &'a StackMemory,
    count: usize,
    /// Whether there was no room for one of them.
    is_short: bool,
}

unsafe extern "C" fn take(context: *mut c_void, frame: *const StackFrame) {
    // SAFETY: the context is the one below; the frame and its texts are valid during the visit.
    let (found, frame) = unsafe { (&mut *context.cast::<Found<'_>>(), &*frame) };
    let text = |bytes: *const u8, len: u32| {
        // SAFETY: as above.
        (!bytes.is_null()).then(|| unsafe { core::slice::from_raw_parts(bytes, len as usize) })
    };
    let (path, label) = (text(frame.path, frame.path_len), text(frame.label, frame.label_len));
    let number = path.and_then(|path| SITES.frame(path, frame.line, label));
    match (number, found.memory.frames.get(found.count)) {
        (Some(number), Some(place)) => {
            place.set(number);
            found.count += 1;
        }
        _ => found.is_short = true,
    }
}

#[cold]
#[inline(never)]
fn intern(memory: &StackMemory, vm: &VmSource, depth: u32, frame: &mut Frame) -> u32 {
    let mut found = Found { memory, count: 0, is_short: false };
    let (scratch, words) = (memory.scratch.get(), size_of_val(&memory.scratch) / size_of::<u64>());
    let depth = depth.min(MOST_FRAMES as u32);
    // SAFETY: the lender's promise as for the key; the scratch is this thread's own and has that many words.
    unsafe {
        (vm.stack)(&raw mut *frame, depth, scratch.cast(), words as u32, (&raw mut found).cast(), take);
    }
    let leaf = line(frame);
    if found.is_short || found.count == 0 || frame.path.is_null() || frame.line == 0 || leaf == SITE_OTHER {
        return leaf;
    }
    let mut numbers = [0; MOST_FRAMES];
    for (number, frame) in numbers.iter_mut().zip(&memory.frames).take(found.count) {
        *number = frame.get();
    }
    numbers.get(..found.count).and_then(|numbers| SITES.stack(leaf, numbers)).unwrap_or(leaf)
}

/// See [`memintro_abi::HookApi::stack_frame`].
pub(crate) unsafe extern "C" fn frame(number: u32, answer: *mut StackFrame) -> Status {
    let Some(found) = SITES.stack_line(number) else { return Status::BAD_OPTION };
    let ((path, path_len), (label, label_len)) = (found.path, found.label);
    // SAFETY: the caller's own record.
    unsafe {
        answer.write(StackFrame {
            path,
            label,
            path_len,
            label_len,
            line: found.line,
            frame: found.frame,
            caller: found.caller,
        });
    }
    Status::OK
}

/// Adds what a stack has to the figures of its line.
pub(crate) fn add(sum: &mut SiteRecord, part: &SiteRecord) {
    macro_rules! add_wrapping {
        ($($name:ident),*) => { $(sum.$name = sum.$name.wrapping_add(part.$name);)* };
    }
    add_wrapping!(
        allocations,
        frees,
        total_bytes,
        freed_bytes,
        age_total,
        marked_bytes,
        old_blocks,
        old_bytes
    );
    sum.max_lifespan = sum.max_lifespan.max(part.max_lifespan);
    sum.estimated |= part.estimated;
    figures::add_variances(&mut sum.variances, &part.variances);
    sum.old_blocks_variance += part.old_blocks_variance;
    sum.old_bytes_variance += part.old_bytes_variance;
    sum.old_blocks_skew += part.old_blocks_skew;
    sum.old_bytes_skew += part.old_bytes_skew;
    add_objects(&mut sum.objects, &part.objects);
}

/// Adds what a stack has to the figures of its line's objects.
pub(crate) fn add_objects(sum: &mut ObjectFigures, part: &ObjectFigures) {
    macro_rules! add_wrapping {
        ($($name:ident),*) => { $(sum.$name = sum.$name.wrapping_add(part.$name);)* };
    }
    add_wrapping!(allocations, frees, total_bytes, freed_bytes, marked_bytes, old_objects, old_bytes);
    sum.estimated |= part.estimated;
    macro_rules! add_doubts {
        ($($name:ident),*) => { $(sum.$name += part.$name;)* };
    }
    add_doubts!(allocations_variance, frees_variance, total_bytes_variance, freed_bytes_variance);
    add_doubts!(allocations_skew, frees_skew, total_bytes_skew, freed_bytes_skew);
    add_doubts!(old_objects_variance, old_bytes_variance, old_objects_skew, old_bytes_skew);
}
