//! Call sites that are whole stacks.
//!
//! A key names the innermost lines. The hook computes it from the code that runs in their frames, or asks the
//! VM. The thread's cache usually knows the key until the next marking, when its addresses may belong to
//! other code. Then a stack is found by the numbers of its frames, of which there are fewer than stacks. Only
//! for an unknown frame the hook asks for the lines and interns them. If there is no room for a stack, it
//! counts for its line.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

use memintro_abi::{Frame, FrameKind, SITE_BOOT, SITE_GC, SITE_OTHER, StackFrame, Status, VmSource};
use memintro_tracker::lock::given_up;
use memintro_tracker::sites::{MOST_FRAMES, StackMemory};
use memintro_tracker::threads::ThreadState;

use crate::line::{self, Frames};
use crate::shared::{SITES, STACK_DEPTH};

/// The site of a line that the VM has located.
pub(crate) fn line_site(frame: &Frame) -> u32 {
    match (frame.path.is_null(), frame.line) {
        (true, _) => SITE_OTHER,
        (false, 0) => SITE_BOOT,
        // SAFETY: the VM's path is terminated and stays in place while this thread is in malloc.
        (false, line) => unsafe { SITES.ruby(frame.path, line) }.unwrap_or(SITE_OTHER),
    }
}

/// The site of the stack that runs now, and the generation, if this thread's cache knows it.
#[inline(always)]
pub(crate) fn at_hand(own: &ThreadState) -> Option<(u32, u32)> {
    let memory = own.stacks.taken()?;
    let frames = line::frames(STACK_DEPTH.load(Ordering::Relaxed))?;
    let (key, detail) = frames.hash();
    Some((memory.sites.known(key, detail, frames.stamp)?, frames.generation()))
}

/// The site of the stack that runs now, and the generation. The generation alone: no Ruby runs.
pub(crate) fn site(
    own: &ThreadState,
    vm: &VmSource,
    depth: u32,
    frame: &mut Frame,
) -> Result<(u32, u32), u32> {
    let read = line::frames(depth).map(|frames| (frames, frames.hash())).filter(|(_, (key, _))| *key != 0);
    let (key, detail, stamp) = match &read {
        Some((frames, (key, detail))) => {
            (frame.key, frame.generation) = (1, frames.generation());
            (*key, *detail, frames.stamp)
        }
        None => {
            // SAFETY: the lender promises that it may be called from any thread, inside malloc; `frame` is valid.
            match unsafe { (vm.stack_key)(&raw mut *frame, depth) } {
                FrameKind::RUBY => {}
                FrameKind::GC => return Ok((SITE_GC, frame.generation)),
                _ => return Err(frame.generation),
            }
            (frame.key as u64, frame.detail, u64::from(frame.generation))
        }
    };
    let generation = frame.generation;
    let Some(memory) = own.stacks.memory(&SITES) else {
        // SAFETY: as above, and a line of Ruby runs.
        unsafe { (vm.locate)(&raw mut *frame) };
        return Ok((line_site(frame), generation));
    };
    let frames = read.as_ref().map(|(frames, _)| frames);
    if key == 0 {
        return Ok((intern(memory, vm, depth, frame, None), generation));
    }
    if let Some(site) = memory.sites.known(key, detail, stamp) {
        return Ok((site, generation));
    }
    // The substitute for a site whose lock was not free in time must not be cached.
    let given_up_before = given_up();
    let site = match frames {
        Some(frames) => by_frames(memory, vm, frame, frames, (key, detail)),
        None => None,
    };
    if let Some(site) = site {
        return Ok((site, generation));
    }
    let site = intern(memory, vm, depth, frame, frames);
    if frame.key != 0 && given_up() == given_up_before {
        let numbers = frames.map_or(0, |frames| Numbers::find(memory, frames).hash().unwrap_or(0));
        memory.sites.put(key, detail, stamp, numbers, site);
    }
    Ok((site, generation))
}

/// The site of a stack, by the numbers of its frames. Asks the VM for unknown frames and those that they
/// called.
#[inline(never)]
fn by_frames(
    memory: &StackMemory,
    vm: &VmSource,
    frame: &mut Frame,
    frames: &Frames,
    (key, detail): (u64, u32),
) -> Option<u32> {
    let mut numbers = Numbers::find(memory, frames);
    if numbers.to_ask != 0 {
        visit(memory, vm, numbers.to_ask, frame, Some(frames));
        frame.key = 1;
        numbers = Numbers::find(memory, frames);
    }
    let hash = numbers.hash()?;
    if let Some(site) = memory.sites.renewed(key, detail, frames.stamp, hash) {
        return Some(site);
    }
    let mut room = [0; MOST_FRAMES];
    let all = copied(&memory.places, numbers.count, &mut room);
    let site = SITES.known_stack(all).or_else(|| {
        // SAFETY: the lender promises that it may be called from any thread, inside malloc.
        unsafe { (vm.locate)(&raw mut *frame) };
        let is_there = frame.key != 0 && !frame.path.is_null() && frame.line != 0;
        frame.key = 1;
        let leaf = is_there.then(|| line_site(frame)).filter(|leaf| *leaf != SITE_OTHER)?;
        SITES.stack(leaf, all)
    })?;
    memory.sites.put(key, detail, frames.stamp, hash, site);
    Some(site)
}

/// Facts about frames by the numbers of their code, which are in the memory's places.
struct Numbers {
    hash: u64,
    count: usize,
    /// How many of the innermost frames the VM must be asked for, so that each is known.
    to_ask: u32,
}

impl Numbers {
    fn find(memory: &StackMemory, frames: &Frames) -> Self {
        let mut found = Self { hash: 0, count: 0, to_ask: 0 };
        let mut places = memory.places.iter();
        frames.each(|counter, code| {
            let Some(place) = places.next() else { return false };
            let (key, detail) = frames.key(counter, code);
            let number = memory.known_frames.known(key, detail, frames.generation()).unwrap_or(0);
            place.set(number);
            found.hash = (found.hash.rotate_left(7) ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            found.count += 1;
            if number == 0 {
                found.to_ask = found.count as u32;
            }
            true
        });
        found
    }

    /// The hash of all frames, if each is known; never 0.
    fn hash(&self) -> Option<u64> {
        (self.to_ask == 0 && self.count != 0).then_some((self.hash ^ (self.hash >> 29)) | 1)
    }
}

/// In the memory's places: a frame that is left out.
const WITHOUT_LINE: u32 = u32::MAX;

/// The first numbers up to the limit, without those of skipped frames.
fn copied<'a>(cells: &[Cell<u32>], count: usize, room: &'a mut [u32; MOST_FRAMES]) -> &'a [u32] {
    let (mut places, mut copied) = (room.iter_mut(), 0);
    for number in cells.iter().take(count).map(Cell::get).filter(|number| *number != WITHOUT_LINE) {
        if let Some(place) = places.next() {
            *place = number;
            copied += 1;
        }
    }
    room.get(..copied).unwrap_or_default()
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
    let place = (frame.frame as usize).checked_sub(1).and_then(|at| found.memory.places.get(at));
    if frame.line == 0 {
        place.into_iter().for_each(|place| place.set(WITHOUT_LINE));
        return;
    }
    let (path, label) = (text(frame.path, frame.path_len), text(frame.label, frame.label_len));
    let number = place.map(Cell::get).filter(|number| *number != 0);
    let number = number.or_else(|| path.and_then(|path| SITES.frame(path, frame.line, label)));
    match (number, found.memory.frames.get(found.count)) {
        (Some(number), Some(next)) => {
            next.set(number);
            found.count += 1;
            place.into_iter().for_each(|place| place.set(number));
        }
        _ => found.is_short = true,
    }
}

#[cold]
#[inline(never)]
fn intern(
    memory: &StackMemory,
    vm: &VmSource,
    depth: u32,
    frame: &mut Frame,
    frames: Option<&Frames>,
) -> u32 {
    let found = visit(memory, vm, depth, frame, frames);
    let leaf = line_site(frame);
    if found.is_short || found.count == 0 || frame.path.is_null() || frame.line == 0 || leaf == SITE_OTHER {
        return leaf;
    }
    let mut room = [0; MOST_FRAMES];
    SITES.stack(leaf, copied(&memory.frames, found.count, &mut room)).unwrap_or(leaf)
}

/// Asks the VM for this number of lines, and remembers the code of their frames, if it is known: then the
/// numbers of known frames are in the memory's places.
fn visit<'a>(
    memory: &'a StackMemory,
    vm: &VmSource,
    depth: u32,
    frame: &mut Frame,
    frames: Option<&Frames>,
) -> Found<'a> {
    let mut found = Found { memory, count: 0, is_short: false };
    if frames.is_none() {
        memory.places.iter().for_each(|place| place.set(0));
    }
    let (scratch, words) = (memory.scratch.get(), size_of_val(&memory.scratch) / size_of::<u64>());
    let depth = depth.min(MOST_FRAMES as u32);
    // SAFETY: the lender's promise as for the key; the scratch is this thread's own and has that many words.
    unsafe {
        (vm.stack)(&raw mut *frame, depth, scratch.cast(), words as u32, (&raw mut found).cast(), take);
    }
    if frame.key != 0
        && let Some(frames) = frames
    {
        let mut places = memory.places.iter().take(depth as usize);
        frames.each(|counter, code| {
            let Some(place) = places.next() else { return false };
            if place.get() != 0 {
                let (key, detail) = frames.key(counter, code);
                memory.known_frames.put(key, detail, frames.generation(), place.get());
            }
            true
        });
    }
    found
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
