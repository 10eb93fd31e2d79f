//! Untracked sections of Ruby threads that move between native threads (`RUBY_MN_THREADS=1`).
//!
//! The hook counts a section's depth in the native thread. Where that runs several Ruby threads in turn, those of the
//! program would be untracked while one of memintro's sleeps in a section. So each Ruby thread takes its depth along: it
//! is kept in the thread when that gives up Ruby's lock, and goes to the native thread in which it goes on.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use memintro_abi::HookApi;
use rb_sys::VALUE;

use crate::hook_link;
use crate::lookup::look_up;

const ADD: &CStr = c"rb_internal_thread_add_event_hook";
const CREATE_KEY: &CStr = c"rb_internal_thread_specific_key_create";
const SET: &CStr = c"rb_internal_thread_specific_set";
const GET: &CStr = c"rb_internal_thread_specific_get";

/// Numbers of events in `ruby/thread.h`, as in each Ruby that has threads of this kind.
const RESUMED: u32 = 1 << 2;
const SUSPENDED: u32 = 1 << 3;
const EXITED: u32 = 1 << 4;

/// `rb_internal_thread_event_data_t`.
#[repr(C)]
struct EventData {
    thread: VALUE,
}

type Callback = unsafe extern "C" fn(u32, *const EventData, *mut c_void);
type Add = unsafe extern "C" fn(Callback, u32, *mut c_void) -> *mut c_void;
type CreateKey = unsafe extern "C" fn() -> c_int;
type Set = unsafe extern "C" fn(VALUE, c_int, *mut c_void);
type Get = unsafe extern "C" fn(VALUE, c_int) -> *mut c_void;

struct Kept {
    key: c_int,
    set: Set,
    get: Get,
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// Whether several Ruby threads of the main Ractor run in one native thread.
pub(crate) fn shares_native_threads() -> bool {
    std::env::var_os("RUBY_MN_THREADS").is_some_and(|value| value == "1")
}

/// Called once, when the extension is loaded. Rubies without these functions have no such threads.
pub(crate) fn follow() {
    if !shares_native_threads() {
        return;
    }
    // SAFETY: functions of these types in every Ruby that has them (3.3, 3.4).
    let found = unsafe {
        (look_up!(ADD, Add), look_up!(CREATE_KEY, CreateKey), look_up!(SET, Set), look_up!(GET, Get))
    };
    let (Some(add), Some(create_key), Some(set), Some(get)) = found else { return };
    let Some(key) = key_of(create_key) else { return };
    KEPT.get_or_init(|| Kept { key, set, get });
    // SAFETY: the function lives as long as this library, which Ruby never unloads.
    unsafe { add(moves, RESUMED | SUSPENDED | EXITED, std::ptr::null_mut()) };
}

/// `None`: there are several Ractors already, in which Ruby makes no first key.
fn key_of(create_key: CreateKey) -> Option<c_int> {
    // SAFETY: the caller holds Ruby's lock.
    let key = magnus::rb_sys::protect(|| unsafe { create_key() } as VALUE).ok()?;
    c_int::try_from(key).ok()
}

/// Runs in the thread itself, perhaps without Ruby's lock: it may allocate nothing and call no Ruby.
unsafe extern "C" fn moves(event: u32, data: *const EventData, _unused: *mut c_void) {
    let (Some(kept), Some(api)) = (KEPT.get(), hook_link::found()) else { return };
    // SAFETY: Ruby's own record, which lives during this call.
    let thread = unsafe { (*data).thread };
    match event {
        RESUMED => {
            // SAFETY: the thread runs, and only it writes its value.
            let depth = unsafe { (kept.get)(thread, kept.key) }.addr();
            // SAFETY: as above.
            unsafe { (kept.set)(thread, kept.key, std::ptr::null_mut()) };
            for _ in 0..depth {
                (api.untracked_enter)();
            }
        }
        SUSPENDED => {
            let depth = leave_all(api);
            // SAFETY: as above.
            unsafe { (kept.set)(thread, kept.key, std::ptr::without_provenance_mut(depth)) };
        }
        _ => {
            leave_all(api);
        }
    }
}

/// Leaves all sections of this native thread; returns how many these were.
fn leave_all(api: &HookApi) -> usize {
    let depth = (api.untracked_enter)().saturating_sub(1);
    while (api.untracked_leave)() > 0 {}
    depth as usize
}
