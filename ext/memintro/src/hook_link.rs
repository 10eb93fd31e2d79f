//! Finds the hook: the one that was preloaded, else the one beside this library, else the one a folder above.
//!
//! There is one tracker in a process. A hook of another version is refused, because its table has another layout; the
//! error names the versions.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use memintro_abi::{HOOK_API_SYMBOL, HookApi, VERSION};

use crate::process::mappings;

/// File name of the hook.
const HOOK_FILE: &str = "libmemintro_hook.so";

static LOADED: OnceLock<&'static HookApi> = OnceLock::new();

/// The preloaded hook. It is looked up once, because it was loaded before this library or never, and a lookup that
/// finds nothing searches each module of the process.
static PRELOADED: OnceLock<Option<&'static HookApi>> = OnceLock::new();

/// Where the Ruby code knows the hook to be.
static NOTED: OnceLock<PathBuf> = OnceLock::new();

/// Notes where the hook is. It counts if there is none beside this library: a Ruby::Box loads a copy of it from a folder for
/// temporary files.
pub(crate) fn note(path: PathBuf) {
    let _ = NOTED.set(path);
}

/// The hook, if it is in the process already. Loads nothing.
pub(crate) fn found() -> Option<&'static HookApi> {
    LOADED.get().copied().or_else(|| *PRELOADED.get_or_init(preloaded))
}

fn preloaded() -> Option<&'static HookApi> {
    // SAFETY: a look-up by name.
    let api = unsafe { libc::dlsym(libc::RTLD_DEFAULT, HOOK_API_SYMBOL.as_ptr()) };
    checked(api).ok()
}

/// The hook, which is loaded if necessary. The error is a text for people.
pub(crate) fn load() -> Result<&'static HookApi, String> {
    if let Some(api) = found() {
        return Ok(api);
    }
    if cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        return Err(
            "following malloc needs Linux with glibc; everything that needs only Ruby's own functions works"
                .into(),
        );
    }
    if let Some(message) = mappings::scarcity() {
        return Err(message);
    }
    let path = path().ok_or("the extension does not know where it was loaded from")?;
    let c_path =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| "the extension's path has a NUL in it")?;
    if let Some(damage) = damage(&c_path) {
        return Err(format!("the hook could not be loaded: {damage}"));
    }
    // It is never unloaded, because a pointer to one of its functions may have been copied. It is local, because
    // libraries that are loaded later must not find its malloc.
    // SAFETY: loading our own library; its constructor only looks around.
    let handle =
        unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
    if handle.is_null() {
        return Err(format!("the hook could not be loaded: {}", last_error()));
    }
    // SAFETY: a look-up by name in the library just loaded.
    let api = checked(unsafe { libc::dlsym(handle, HOOK_API_SYMBOL.as_ptr()) })?;
    Ok(LOADED.get_or_init(|| api))
}

/// What would end this process or keep it waiting if the loader opened it: a part of a file, or a pipe. `Paths.damage` of the
/// Ruby code has the same for the other parts. The loader says what else is wrong.
fn damage(path: &CStr) -> Option<String> {
    let mut header = [0u8; 64];
    // SAFETY: a terminated path; zero is a valid stat; reads go to the array, and the descriptor is closed once.
    let (found, read) = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC);
        libc::fstat(file, &raw mut found);
        let read = libc::pread(file, header.as_mut_ptr().cast(), header.len(), 0);
        libc::close(file);
        (found, read)
    };
    let whole = whole(&header);
    match found.st_mode & libc::S_IFMT {
        0 => None,
        libc::S_IFREG if read < 64 || found.st_size.unsigned_abs() >= whole => None,
        kind => Some(describe_damage(path, kind == libc::S_IFREG, found.st_size, whole)),
    }
}

/// Where an ELF file ends, by its header: behind its table of sections.
fn whole(header: &[u8; 64]) -> u64 {
    let number =
        |at, bytes| header.iter().skip(at).take(bytes).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    number(40, 8).saturating_add(number(58, 2) * number(60, 2))
}

#[cold]
fn describe_damage(path: &CStr, is_file: bool, bytes: i64, whole: u64) -> String {
    let path = path.to_string_lossy();
    if is_file {
        format!("{path} is incomplete: it has {bytes} bytes of {whole}")
    } else {
        format!("{path} is no file")
    }
}

/// The path of the hook: beside this library, or a folder above. A precompiled gem has a library for each Ruby in a
/// folder of its own, and one hook for all. Else the one that the Ruby code knows. If there is none, the path beside this library.
pub(crate) fn path() -> Option<PathBuf> {
    // SAFETY: zero is a valid Dl_info, and dladdr only reads the loader's lists.
    let this = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr((path as fn() -> Option<PathBuf> as *const ()).cast(), &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let this = PathBuf::from(OsStr::from_bytes(this.to_bytes()));
    let this = this.canonicalize().unwrap_or(this);
    let folder = this.parent()?;
    let beside = folder.join(HOOK_FILE);
    let above = folder.parent().map(|folder| folder.join(HOOK_FILE));
    let all = [Some(&beside), above.as_ref(), NOTED.get()];
    Some(all.into_iter().flatten().find(|path| path.is_file()).unwrap_or(&beside).clone())
}

fn checked(api: *const libc::c_void) -> Result<&'static HookApi, String> {
    // SAFETY: the symbol is memintro's own; its first two words have been the same in every version.
    let api = unsafe { api.cast::<HookApi>().as_ref() }.ok_or("the hook has no table of functions")?;
    if api.version != VERSION || api.size as usize != size_of::<HookApi>() {
        return Err(format!(
            "the hook in this process has interface version {}, this gem needs {VERSION}: preload the hook of the same gem version",
            api.version
        ));
    }
    Ok(api)
}

fn last_error() -> String {
    // SAFETY: dlerror answers null or a terminated text that is valid until the next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
