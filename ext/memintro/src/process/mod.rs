//! Reads from /proc about the memory of a process. It does not depend on Ruby, and all figures are bytes.
//!
//! A process that has ended but was not waited for, and a kernel thread, hold no memory of their own: their figures are
//! zero, not errors.

mod kept_statm;
pub(crate) mod mappings;

use std::io::Read;

use procfs::process::{Process, SmapsRollup, Stat, StatM, Status};
use procfs::{FromRead, ProcError};

pub(crate) use kept_statm::own_statm;

/// Why a figure could not be read.
pub(crate) enum Trouble {
    /// There is no such process (any more).
    Gone(i32),
    /// The process belongs to another user, or is hidden.
    Forbidden(i32, String),
    /// There is no /proc here, or one of an unknown format.
    Unreadable(String, String),
}

/// From `statm`.
pub(crate) struct Sizes {
    pub(crate) rss: u64,
    pub(crate) vsize: u64,
}

impl From<StatM> for Sizes {
    fn from(statm: StatM) -> Self {
        let page = procfs::page_size();
        Self { rss: statm.resident.saturating_mul(page), vsize: statm.size.saturating_mul(page) }
    }
}

/// From `status`.
#[derive(Default)]
pub(crate) struct Peaks {
    pub(crate) peak_rss: u64,
    pub(crate) swap: u64,
}

/// From `smaps_rollup`, for which the kernel walks all page tables.
#[derive(Default)]
pub(crate) struct Shares {
    pub(crate) pss: u64,
    pub(crate) uss: u64,
    pub(crate) swap_pss: u64,
    /// From the same walk, so it is never less than `pss`.
    pub(crate) rss: u64,
}

/// This process, with any id in the mounted /proc.
pub(crate) fn own() -> Result<Process, Trouble> {
    Process::myself().map_err(|error| Trouble::Unreadable("/proc/self".to_owned(), plain(&error)))
}

/// Another process. `started`, if given, is the result of [`started`] when the id was learned, because ids are
/// reused.
pub(crate) fn of_pid(pid: i32, expected: Option<u64>) -> Result<Process, Trouble> {
    let process = Process::new(pid).map_err(|error| explain(pid, "", error))?;
    match expected {
        Some(ticks) if started(&process)? != ticks => Err(Trouble::Gone(pid)),
        _ => Ok(process),
    }
}

/// When the process started, in clock ticks since the machine started.
pub(crate) fn started(process: &Process) -> Result<u64, Trouble> {
    parse::<Stat>(process, "stat").and_then(|stat| match stat {
        Some(stat) => Ok(stat.starttime),
        None => Err(Trouble::Gone(process.pid())),
    })
}

pub(crate) fn sizes(process: &Process) -> Result<Sizes, Trouble> {
    Ok(parse::<StatM>(process, "statm")?.map_or(Sizes { rss: 0, vsize: 0 }, Sizes::from))
}

pub(crate) fn peaks(process: &Process) -> Result<Peaks, Trouble> {
    let bytes = |kib: Option<u64>| kib.unwrap_or(0).saturating_mul(1024);
    Ok(parse::<Status>(process, "status")?
        .map(|status| Peaks { peak_rss: bytes(status.vmhwm), swap: bytes(status.vmswap) })
        .unwrap_or_default())
}

/// Takes as long as the kernel needs for all page tables, so it is to be called without the GVL.
pub(crate) fn shares(process: &Process) -> Result<Shares, Trouble> {
    let rollup = match parse::<SmapsRollup>(process, "smaps_rollup") {
        // Before Linux 4.14 there is only the long form, with the same sums.
        Err(Trouble::Unreadable(..)) => parse::<SmapsRollup>(process, "smaps")?,
        other => other?,
    };
    let mut sums = Shares::default();
    for map in rollup.iter().flat_map(|rollup| &rollup.memory_map_rollup.0) {
        for (name, bytes) in &map.extension.map {
            let sum = match name.as_str() {
                "Pss" => &mut sums.pss,
                "Private_Clean" | "Private_Dirty" | "Private_Hugetlb" => &mut sums.uss,
                "SwapPss" => &mut sums.swap_pss,
                "Rss" => &mut sums.rss,
                _ => continue,
            };
            *sum = sum.saturating_add(*bytes);
        }
    }
    Ok(sums)
}

/// The process and all its descendants at about this moment, the process first.
pub(crate) fn tree(root: i32) -> Result<Vec<i32>, Trouble> {
    of_pid(root, None)?;
    let all = procfs::process::all_processes()
        .map_err(|error| Trouble::Unreadable("/proc".to_owned(), plain(&error)))?;
    // A process that ends meanwhile adds nothing.
    let parents: Vec<(i32, i32)> = all
        .filter_map(Result::ok)
        .filter_map(|process| process.stat().ok().map(|stat| (stat.pid, stat.ppid)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(pid, of)| *of == parent && *pid != root).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(found)
}

/// Number of times that a process is read again: one that is ending is refused for a moment before its state shows
/// that.
const REFUSALS: u32 = 4;

/// None: the process has no memory of its own.
fn parse<T: FromRead>(process: &Process, name: &str) -> Result<Option<T>, Trouble> {
    let mut answer = read(process, name);
    for _ in 0..REFUSALS {
        if !matches!(answer, Err(ProcError::PermissionDenied(_))) || is_ending(process) {
            break;
        }
        crate::copy::sleep(std::time::Duration::from_millis(1));
        answer = read(process, name);
    }
    let text = match answer {
        // The kernel also refuses to show a process that is about to end.
        Err(ProcError::PermissionDenied(_)) if is_ending(process) => return without_memory(process),
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(libc::ESRCH) => {
            return without_memory(process);
        }
        Err(error) => return Err(explain(process.pid(), name, error)),
        Ok(text) if text.is_empty() => return without_memory(process),
        Ok(text) => text,
    };
    T::from_read(text.as_slice())
        .map(Some)
        .map_err(|error| Trouble::Unreadable(path(process.pid(), name), plain(&error)))
}

fn read(process: &Process, name: &str) -> Result<Vec<u8>, ProcError> {
    let mut text = Vec::with_capacity(1_536);
    process.open_relative(name)?.read_to_end(&mut text).map_err(ProcError::from)?;
    // The name of a process, which the kernel cuts after 15 bytes, need not be text.
    text.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
    Ok(text)
}

fn is_ending(process: &Process) -> bool {
    const PF_EXITING: u32 = 4;
    match read(process, "stat").map(|text| Stat::from_read(text.as_slice())) {
        Ok(Ok(stat)) => matches!(stat.state, 'Z' | 'X') || stat.flags & PF_EXITING != 0,
        Ok(Err(_)) => false,
        Err(error) => !matches!(error, ProcError::PermissionDenied(_)),
    }
}

fn without_memory<T>(process: &Process) -> Result<Option<T>, Trouble> {
    match read(process, "stat") {
        Ok(text) if !text.is_empty() => Ok(None),
        _ => Err(Trouble::Gone(process.pid())),
    }
}

fn explain(pid: i32, name: &str, error: ProcError) -> Trouble {
    let code = match &error {
        ProcError::PermissionDenied(_) => return Trouble::Forbidden(pid, path(pid, name)),
        ProcError::Io(error, _) => error.raw_os_error(),
        ProcError::NotFound(_) => Some(libc::ENOENT),
        _ => None,
    };
    if matches!(code, Some(libc::ENOENT | libc::ESRCH)) {
        if !std::path::Path::new("/proc/self/stat").exists() {
            return Trouble::Unreadable("/proc".to_owned(), "it is not mounted here".to_owned());
        }
        // SAFETY: signal 0 only asks whether there is such a process.
        if unsafe { libc::kill(pid, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
        {
            return Trouble::Gone(pid);
        }
        // The process exists, but /proc does not show it, because of the mount option hidepid.
        if !std::path::Path::new(&path(pid, "")).exists() {
            return Trouble::Forbidden(pid, path(pid, name));
        }
    }
    Trouble::Unreadable(path(pid, name), plain(&error))
}

fn path(pid: i32, name: &str) -> String {
    format!("/proc/{pid}/{name}").trim_end_matches('/').to_owned()
}

/// Why nothing could be read, where /proc is not to blame.
pub(crate) const NO_DESCRIPTOR: &str = "no more files may be open: raise the limit (ulimit -n)";

fn in_words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => NO_DESCRIPTOR.to_owned(),
        _ => error.to_string(),
    }
}

fn plain(error: &ProcError) -> String {
    match error {
        ProcError::Io(error, _) => in_words(error),
        ProcError::NotFound(_) => "it is not there".to_owned(),
        ProcError::PermissionDenied(_) => "permission denied".to_owned(),
        _ => "its format is not known".to_owned(),
    }
}
