//! Memory of processes, and what a background thread needs from the system.
//!
//! All of this may be called from any Ractor, from finalizers and from trap handlers. No lock is held while Ruby
//! could switch threads, and the only Ruby objects are the Integers that are returned.

use magnus::{Error, RArray, RModule, Ruby, function, prelude::*};
use procfs::process::Process;

use super::errors;
use super::ractor_safe::ractor_safe;
use super::without_gvl::without_gvl;
use crate::hook_link;
use crate::process::{self, Trouble};
use crate::signals;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    ractor_safe(|| define(native))
}

fn define(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("rss", function!(rss, 0))?;
    native.define_singleton_method("vsize", function!(vsize, 0))?;
    native.define_singleton_method("peak_rss", function!(peak_rss, 0))?;
    native.define_singleton_method("swap", function!(swap, 0))?;
    native.define_singleton_method("pss", function!(pss, 0))?;
    native.define_singleton_method("uss", function!(uss, 0))?;
    native.define_singleton_method("process_started", function!(process_started, 1))?;
    native.define_singleton_method("process_sizes", function!(process_sizes, 2))?;
    native.define_singleton_method("process_peaks", function!(process_peaks, 2))?;
    native.define_singleton_method("process_shares", function!(process_shares, 2))?;
    native.define_singleton_method("process_tree", function!(process_tree, 1))?;
    native.define_singleton_method("waited_peak_rss", function!(waited_peak_rss, 0))?;
    native.define_singleton_method("kernel_pid", function!(kernel_pid, 0))?;
    native.define_singleton_method("refuse_signals", function!(refuse_signals, 0))?;
    native.define_singleton_method("accept_signals", function!(accept_signals, 0))
}

/// Runs without counting its allocations.
fn untracked<T>(work: impl FnOnce() -> T) -> T {
    let Some(api) = hook_link::found() else { return work() };
    (api.untracked_enter)();
    let answer = work();
    (api.untracked_leave)();
    answer
}

fn answer<T>(ruby: &Ruby, result: Result<T, Trouble>) -> Result<T, Error> {
    result.map_err(|trouble| {
        let (kind, message) = match trouble {
            Trouble::Gone(pid) => (
                "NoProcessError",
                format!("there is no process {pid}; it may have ended. `ps -e` lists the running processes"),
            ),
            Trouble::Forbidden(pid, file) => (
                "ForbiddenError",
                format!(
                    "{file} may not be read: process {pid} is another user's, or /proc is mounted with hidepid; run as its user or as root"
                ),
            ),
            Trouble::Unreadable(file, why) if why == process::NO_DESCRIPTOR => {
                ("ProcError", format!("{file} cannot be read: {why}"))
            }
            Trouble::Unreadable(file, why) => (
                "ProcError",
                format!("{file} cannot be read: {why}; memory of processes is read from Linux's /proc, so mount it"),
            ),
        };
        errors::error(ruby, kind, message)
    })
}

fn rss(ruby: &Ruby) -> Result<u64, Error> {
    answer(ruby, untracked(process::own_statm)).map(|sizes| sizes.rss)
}

fn vsize(ruby: &Ruby) -> Result<u64, Error> {
    answer(ruby, untracked(process::own_statm)).map(|sizes| sizes.vsize)
}

fn peak_rss(ruby: &Ruby) -> Result<u64, Error> {
    answer(ruby, untracked(own_peaks)).map(|peaks| peaks.peak_rss)
}

fn swap(ruby: &Ruby) -> Result<u64, Error> {
    answer(ruby, untracked(own_peaks)).map(|peaks| peaks.swap)
}

fn own_peaks() -> Result<process::Peaks, Trouble> {
    process::own().and_then(|own| process::peaks(&own))
}

fn pss(ruby: &Ruby) -> Result<u64, Error> {
    own_shares(ruby).map(|shares| shares.pss)
}

fn uss(ruby: &Ruby) -> Result<u64, Error> {
    own_shares(ruby).map(|shares| shares.uss)
}

fn own_shares(ruby: &Ruby) -> Result<process::Shares, Error> {
    answer(ruby, without_gvl(|| untracked(|| process::own().and_then(|own| process::shares(&own))))?)
}

fn process_started(ruby: &Ruby, pid: i32) -> Result<u64, Error> {
    answer(ruby, untracked(|| process::of_pid(pid, None).and_then(|process| process::started(&process))))
}

fn figures_of<T>(
    ruby: &Ruby,
    pid: i32,
    started: Option<u64>,
    what: fn(&Process) -> Result<T, Trouble>,
) -> Result<T, Error> {
    answer(
        ruby,
        without_gvl(|| untracked(|| process::of_pid(pid, started).and_then(|process| what(&process))))?,
    )
}

fn process_sizes(ruby: &Ruby, pid: i32, started: Option<u64>) -> Result<RArray, Error> {
    figures_of(ruby, pid, started, process::sizes).map(|sizes| ruby.ary_from_iter([sizes.rss, sizes.vsize]))
}

fn process_peaks(ruby: &Ruby, pid: i32, started: Option<u64>) -> Result<RArray, Error> {
    figures_of(ruby, pid, started, process::peaks)
        .map(|peaks| ruby.ary_from_iter([peaks.peak_rss, peaks.swap]))
}

fn process_shares(ruby: &Ruby, pid: i32, started: Option<u64>) -> Result<RArray, Error> {
    figures_of(ruby, pid, started, process::shares)
        .map(|shares| ruby.ary_from_iter([shares.pss, shares.uss, shares.swap_pss, shares.rss]))
}

fn process_tree(ruby: &Ruby, pid: i32) -> Result<RArray, Error> {
    answer(ruby, without_gvl(|| untracked(|| process::tree(pid)))?).map(|pids| ruby.ary_from_vec(pids))
}

/// The greatest figure of the children that were waited for, and of their children; 0 if there were none.
fn waited_peak_rss() -> u64 {
    // SAFETY: zero is a valid rusage; the call fills it and cannot fail with it.
    let kib = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_maxrss
    };
    u64::try_from(kib).unwrap_or(0) * 1024
}

fn kernel_pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// Blocks the signals that programs handle, in this thread, and no others.
fn refuse_signals() {
    signals::mask(libc::SIG_SETMASK);
}

/// Unblocks all signals, because the native thread may be reused, and processes that it starts inherit its mask.
fn accept_signals() {
    // SAFETY: zero is a valid set; the calls fill it and cannot fail with it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}
