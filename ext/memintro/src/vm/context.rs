//! Finds whether this thread has an execution context of Ruby.
//!
//! Asking the VM for frames without one crashes Ruby 3.1. A native thread that never ran Ruby, or has just left it,
//! has none, although `ruby_thread_has_gvl_p` may still say yes.
//!
//! | Ruby | how it is found | from |
//! |---|---|---|
//! | 3.1, 3.2 | the thread-local `ruby_current_ec`, an exported symbol | vm.c: `RB_THREAD_LOCAL_SPECIFIER ... ruby_current_ec` |
//! | 3.3 and later | the same variable, which has no symbol: `rb_profile_frames` begins with it ([`find_variable`]) | vm_backtrace.c: "If there is no EC ..." |
//! | 3.3 and later, where it is not found | `rb_profile_frames` answers 0 without one | the same |
//! | 3.3 and later, where the context is then | a word of the thread's structure, which the thread object points to | `rb_thread_t.ec`, at an offset that [`find_in_thread`] looks for |

use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use rb_sys::VALUE;

use super::accessors::{self, ThreadLocal};
use super::functions::{self, Functions};
use super::probe::Probe;

/// The variable's distance from the thread pointer; `UNKNOWN` if it was not found or is not static.
static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = isize::MAX;
/// The static TLS block is just below the thread pointer (x86-64) or just above it (aarch64). A variable of a library
/// that was loaded later is elsewhere, at a different distance in each thread.
const STATIC_TLS_REACH: isize = 64 * 1024;

/// Index of the word of a thread's structure that points to its execution context; `NOT_FOUND` until
/// [`find_in_thread`] has found it.
static WORD_OF_THREAD: AtomicUsize = AtomicUsize::new(NOT_FOUND);
const NOT_FOUND: usize = usize::MAX;
/// The context is among the structure's first members in all Rubies so far.
const WORDS_OF_THREAD: usize = 32;
/// Index of the word of a thread object that points to its structure: behind flags, class, type and the mark of typed
/// data.
const WORD_OF_OBJECT: usize = 4;
/// A context points to its thread, in one of its first words.
const WORDS_OF_CONTEXT: usize = 16;

/// Finds the variable.
pub(crate) fn prepare() {
    // SAFETY: a look-up by name; for a thread-local it answers the calling thread's instance.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ruby_current_ec".as_ptr()) };
    if address.is_null() {
        return;
    }
    let offset = (address as isize).wrapping_sub(thread_pointer() as isize);
    if offset.abs() < STATIC_TLS_REACH {
        OFFSET.store(offset, Ordering::Release);
    }
}

/// The variable's distance from the thread pointer, if it is the same in all threads.
pub(super) fn offset() -> Option<isize> {
    Some(OFFSET.load(Ordering::Relaxed)).filter(|offset| *offset != UNKNOWN)
}

/// How far a word of the calling thread's static TLS block is from the thread pointer; `None`: it is elsewhere.
pub(super) fn distance(word: usize) -> Option<isize> {
    let distance = word.wrapping_sub(thread_pointer() as usize).cast_signed();
    (distance.abs() < STATIC_TLS_REACH).then_some(distance)
}

/// The calling thread's word at this distance.
pub(super) fn word(distance: isize) -> *const u8 {
    thread_pointer().wrapping_offset(distance)
}

/// What is known about the calling thread's execution context.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// The thread has none.
    None,
    /// The thread has one, whose address this Ruby does not tell.
    Hidden,
    /// The thread has this one.
    At(*const c_void),
}

/// The calling thread's execution context.
#[inline]
pub(crate) fn current() -> Context {
    let offset = OFFSET.load(Ordering::Relaxed);
    if offset == UNKNOWN {
        return functions::get().map_or(Context::None, through_thread);
    }
    let variable = thread_pointer().wrapping_offset(offset).cast::<*const c_void>();
    // SAFETY: the variable was found in the static TLS block, which every thread has at the same distance.
    let context = unsafe { *variable };
    if context.is_null() { Context::None } else { Context::At(context) }
}

#[inline]
fn through_thread(vm: &Functions) -> Context {
    if !has_frames(vm) {
        return Context::None;
    }
    of_thread(vm).map_or(Context::Hidden, Context::At)
}

/// The execution context of a thread that has frames, if this Ruby tells.
#[inline]
fn of_thread(vm: &Functions) -> Option<*const c_void> {
    let (thread_current, word) = (vm.thread_current?, WORD_OF_THREAD.load(Ordering::Relaxed));
    if word == NOT_FOUND {
        return None;
    }
    // SAFETY: a thread that has frames has an object, which lives as long as it; `find_in_thread` made sure of both words.
    unsafe {
        let thread = *(thread_current() as *const *const *const c_void).add(WORD_OF_OBJECT);
        Some(*thread.add(word))
    }
}

/// The calling thread's execution context while Ruby tells of an event, which it does only to a thread with frames.
#[inline]
pub(super) fn of_event(vm: &Functions) -> Option<*const c_void> {
    match OFFSET.load(Ordering::Relaxed) {
        UNKNOWN => of_thread(vm),
        _ => match current() {
            Context::At(context) => Some(context),
            Context::None | Context::Hidden => None,
        },
    }
}

#[inline]
fn has_frames(vm: &Functions) -> bool {
    let mut frame: VALUE = 0;
    // Lines are not requested, because under YJIT a frame's program counter may belong to another frame.
    // SAFETY: room for the one frame asked for; without an execution context this Ruby answers 0.
    unsafe { (vm.profile_frames)(0, 1, &raw mut frame, std::ptr::null_mut()) > 0 }
}

/// Finds the context in the calling thread's structure: the one word that points to memory which points to this
/// thread and which `is_context` accepts. With it, it looks for the thread-local variable that has the same. It reads only
/// memory that the kernel has shown to be readable.
pub(super) fn find_in_thread(probe: &Probe, is_context: impl Fn(*const c_void) -> bool) {
    let Some(vm) = functions::get() else { return };
    let Some(thread_current) = vm.thread_current else { return };
    if OFFSET.load(Ordering::Relaxed) != UNKNOWN || WORD_OF_THREAD.load(Ordering::Relaxed) != NOT_FOUND {
        return;
    }
    // SAFETY: `prepare` of the functions came first, and a C method that Ruby called runs in a thread.
    let object = unsafe { thread_current() } as usize;
    let Some([thread]) = probe.words(object + WORD_OF_OBJECT * size_of::<usize>()) else { return };
    let Some(words) = probe.words::<WORDS_OF_THREAD>(thread) else { return };
    let mut found = words.iter().enumerate().filter(|(_, candidate)| {
        candidate.is_multiple_of(size_of::<usize>())
            && probe.words::<WORDS_OF_CONTEXT>(**candidate).is_some_and(|words| words.contains(&thread))
            && is_context(**candidate as *const c_void)
    });
    if let (Some((word, context)), None) = (found.next(), found.next()) {
        WORD_OF_THREAD.store(word, Ordering::Release);
        if let Some(offset) = find_variable(probe, vm, *context) {
            OFFSET.store(offset, Ordering::Release);
        }
    }
}

/// The distance from the thread pointer of the variable that `rb_profile_frames` begins with, if that has the calling
/// thread's context.
fn find_variable(probe: &Probe, vm: &Functions, context: usize) -> Option<isize> {
    // SAFETY: a function of the VM, which is longer than what is read.
    let word = unsafe { accessors::thread_local(vm.profile_frames as *const () as usize)? };
    let own = own_word(probe, word)?;
    if probe.words(own) == Some([context]) { distance(own) } else { None }
}

/// The address of the calling thread's instance of a word.
pub(super) fn own_word(probe: &Probe, word: ThreadLocal) -> Option<usize> {
    match word {
        ThreadLocal::OfModule(index, behind) => of_module(probe.words(index)?).map(|word| word + behind),
        ThreadLocal::At(distance) => Some(thread_pointer().wrapping_offset(distance) as usize),
    }
}

/// The same for the word of the module with this number, at this distance.
fn of_module([module, distance]: [usize; 2]) -> Option<usize> {
    struct Search {
        module: usize,
        start: usize,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> libc::c_int {
        // SAFETY: the loader's own record, and the search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        let is_it = info.dlpi_tls_modid == search.module;
        if is_it {
            search.start = info.dlpi_tls_data as usize;
        }
        libc::c_int::from(is_it)
    }
    let mut search = Search { module, start: 0 };
    // SAFETY: the callback fits, and the search outlives the visit.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    (module != 0 && search.start != 0).then(|| search.start.wrapping_add(distance))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: the first word of the thread control block is its own address.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}
