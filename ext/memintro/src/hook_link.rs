//! Finds the hook: the one that was preloaded, else the one beside this library, else the one a folder above.
//!
//! There is one tracker in a process. A hook of another version is refused, because its table has another layout; the
//! error names the versions.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memintro_abi::{HOOK_API_SYMBOL, HookApi, VERSION};

use crate::process::mappings;

/// File name of the hook.
const HOOK_FILE: &str = "libmemintro_hook.so";

static LOADED: OnceLock<&'static HookApi> = OnceLock::new();

/// The preloaded hook. It is looked up once, because it was loaded before this library or never, and a lookup that
/// finds nothing searches each module of the process.
static PRELOADED: OnceLock<Option<&'static HookApi>> = OnceLock::new();

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
    if let Some(damage) = damage(&path) {
        return Err(format!("the hook could not be loaded: {damage}"));
    }
    let c_path =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| "the extension's path has a NUL in it")?;
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
fn damage(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    if !found.is_file() {
        return Some(format!("{} is no file", path.display()));
    }
    let mut header = [0; 64];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    let number =
        |at: usize| header.get(at..at + 2).map(|bytes| u64::from(u16::from_ne_bytes([bytes[0], bytes[1]])));
    let begins = u64::from_ne_bytes(header.get(40..48)?.try_into().ok()?);
    let whole = begins.saturating_add(number(58)? * number(60)?);
    (found.len() < whole)
        .then(|| format!("{} is incomplete: it has {} bytes of {whole}", path.display(), found.len()))
}

/// The path of the hook: beside this library, or a folder above. A precompiled gem has a library for each Ruby in a
/// folder of its own, and one hook for all. If there is none, the path beside this library.
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
    Some(above.filter(|above| !beside.is_file() && above.is_file()).unwrap_or(beside))
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
