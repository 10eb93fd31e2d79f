//! Initialises the library in a process, and does as little as possible.
//!
//! A preloaded library is loaded into everything that the command starts: `sh`, `ps`, `git`. It becomes active only
//! in Ruby processes (with `MEMINTRO_NATIVE_CHILDREN=1`, in all), only if `MEMINTRO_MODE` says so, and never in a
//! privileged process.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use memintro_abi::{Mode, START_SETTINGS, StartOptions};

use crate::patch::look_up;
use crate::replay::Opening;
use crate::shared::{BOOTING, DISABLED, PID, PRELOADED, THREADS};
use crate::{callers, clear, exit, fork, functions, hook_api, in_band, patch, place, start, state, thread};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// Runs at the ordinary exit of a program that is not Ruby. In a Ruby process, Ruby's own report has replaced the
/// dump by then.
extern "C" fn destructor() {
    exit::at_ordinary_exit();
}

extern "C" fn constructor() {
    // SAFETY: nothing is tracked yet, so the gate is open.
    unsafe { THREADS.settle_with(&Opening) };
    // SAFETY: plain system calls.
    unsafe {
        PID.store(libc::getpid().unsigned_abs(), Ordering::Relaxed);
        if libc::getauxval(libc::AT_SECURE) != 0 {
            DISABLED.store(true, Ordering::Relaxed);
            return;
        }
    }
    functions::resolve();
    exit::init();
    if variable(c"MEMINTRO_DISABLE").is_some_and(|value| is_brake(value.to_bytes())) {
        DISABLED.store(true, Ordering::Relaxed);
        return;
    }
    // This scope contains only what came with the program, so the symbol is found here only if the library was
    // preloaded. (RTLD_DEFAULT would search this library itself, too.)
    let first = look_up(memintro_abi::HOOK_API_SYMBOL);
    let preloaded = core::ptr::eq(first, (&raw const hook_api::memintro_hook_api).cast());
    PRELOADED.store(preloaded, Ordering::Relaxed);
    patch::init();
    place::init();
    thread::init();
    THREADS.register();
    fork::init();
    // Set for the processes of a memory check, only.
    let is_check = is_set(c"MEMINTRO_CHECK_CLEARS");
    if is_check
        || variable(c"MEMINTRO_RECORDS").is_some_and(|value| value.to_bytes() == b"table")
        || checks_blocks()
    {
        in_band::bar();
    }
    if !preloaded {
        return;
    }
    let has_ruby = !look_up(c"ruby_init").is_null();
    let mode = match variable(c"MEMINTRO_MODE").map(CStr::to_bytes) {
        Some(b"full") => Mode::FULL,
        Some(b"sampled") => Mode::SAMPLED,
        _ => Mode::OFF,
    };
    let is_wanted = if has_ruby { !is_foreign() } else { is_set(c"MEMINTRO_NATIVE_CHILDREN") };
    if mode != Mode::OFF && is_wanted && !state::is_cramped() {
        BOOTING.store(has_ruby, Ordering::Relaxed);
        let values = START_SETTINGS.map(|setting| number(setting.variable).min(setting.most));
        start::start(&StartOptions::new(mode, values));
        if mode == Mode::FULL && is_check {
            clear::begin();
        }
        if !has_ruby && variable(c"MEMINTRO_NATIVE_CALLERS").is_none_or(|value| value.to_bytes() != b"0") {
            callers::keep_for_dump();
        }
        if !has_ruby && let Some(path) = variable(c"MEMINTRO_REPORT").filter(|path| path.to_bytes() != b"-") {
            exit::arm_child(path);
        }
    }
}

/// Whether `memintro run` has listed the Rubies with an extension, such as `3.1,3.4`, and this Ruby is not
/// one of them: its figures would cost time, and could not be read.
fn is_foreign() -> bool {
    let version = look_up(c"ruby_api_version").cast::<[core::ffi::c_int; 3]>();
    let Some(rubies) = variable(c"MEMINTRO_RUBIES").and_then(|value| value.to_str().ok()) else {
        return false;
    };
    if version.is_null() || rubies.is_empty() {
        return false;
    }
    // SAFETY: a constant of Ruby's public headers, in a module that is loaded: three numbers.
    let [major, minor, _] = unsafe { *version };
    let is_this = |ruby: &str| {
        ruby.split_once('.').map(|(one, other)| (one.parse(), other.parse())) == Some((Ok(major), Ok(minor)))
    };
    !rubies.split(',').any(is_this)
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the constructor runs before anybody can change the environment, and the text is used at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: not null, terminated.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Whether a setting makes glibc keep data of its own at the ends of blocks, or in addresses. (That code is
/// not found as an allocator, because its definitions have another version.)
fn checks_blocks() -> bool {
    let asks = |word: &[u8]| {
        [&b"malloc.check"[..], b"mem.tagging"]
            .iter()
            .any(|name| word.windows(name.len()).any(|part| part == *name))
    };
    variable(c"MALLOC_CHECK_").is_some()
        || variable(c"GLIBC_TUNABLES").is_some_and(|value| asks(value.to_bytes()))
}

/// Whether this value of `MEMINTRO_DISABLE` switches the hook off; all but these few do. The Ruby side has the same
/// list (lib/memintro/support/brake.rb).
fn is_brake(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    ![&b""[..], b"0", b"false", b"no", b"off"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn is_set(name: &CStr) -> bool {
    variable(name).is_some_and(|value| value.to_bytes() == b"1")
}

/// A decimal number; 0 (the default) for anything else.
fn number(name: &CStr) -> u64 {
    variable(name).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok()).unwrap_or(0)
}
