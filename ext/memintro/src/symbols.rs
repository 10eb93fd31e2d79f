//! Names for places in native code: `libfoo.so(symbol+0x1c)`, or `libfoo.so(+0x1139)` where no symbol is known.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use memintro_abi::SiteRecord;

/// A module's path and build, and an offset in it.
type Key = (Vec<u8>, u64, u64);

/// Names that were found while their modules were loaded, for use after they were unloaded.
static FOUND: LazyLock<Mutex<HashMap<Key, String>>> = LazyLock::new(Mutex::default);
/// Limit of these names. Beyond it, a place in an unloaded module is shown as an offset.
const MOST_FOUND: usize = 10_000;

/// Names a native call site. It asks the loader, so it must not be called inside malloc. It costs about a
/// microsecond.
pub(crate) fn name(record: &SiteRecord) -> String {
    if record.path.is_null() {
        return by_address(record.address, None)
            .unwrap_or_else(|| joined("(unknown)", "", "", record.address));
    }
    // SAFETY: the interner keeps the path until a clear or start, which need the GVL that we hold.
    let path = unsafe { std::slice::from_raw_parts(record.path, record.path_len as usize) };
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let key = || -> Key { (path.to_vec(), record.module_build, record.module_offset) };
    if record.address != 0
        && let Some(name) = by_address(record.address, Some((path, record.module_offset)))
    {
        if found.len() < MOST_FOUND && !is_of_program(record.address) {
            found.entry(key()).or_insert_with(|| name.clone());
        }
        return name;
    }
    found.get(&key()).cloned().unwrap_or_else(|| joined(&file(path), "", "+", record.module_offset))
}

/// Names what is at an address now, if the address is in a module (in that of `place`, if given). The loader has
/// another name for the program's own path.
fn by_address(address: u64, place: Option<(&[u8], u64)>) -> Option<String> {
    let info = look_up(address)?;
    // SAFETY: the loader's terminated text.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    if place.is_some_and(|(module, _)| module != path) && !is_of_program(address) {
        return None;
    }
    let file = file(path);
    if info.dli_sname.is_null() {
        let offset = place.map_or(address.wrapping_sub(info.dli_fbase as u64), |(_, offset)| offset);
        return Some(joined(&file, "", "+", offset));
    }
    // SAFETY: the loader's terminated text.
    let symbol = unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy();
    Some(joined(&file, &symbol, "+", address.wrapping_sub(info.dli_saddr as u64)))
}

/// `file(symbol+0x1c)`.
fn joined(file: &str, symbol: &str, sign: &str, offset: u64) -> String {
    format!("{file}({symbol}{sign}0x{offset:x})")
}

/// Names data or code at an address; nothing if no module is there.
pub(crate) fn of_address(address: usize) -> Option<String> {
    let info = at(address)?;
    // SAFETY: the loader's terminated text.
    let file = file(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes());
    if info.dli_sname.is_null() {
        return Some(format!("{file}(+{:#x})", address.wrapping_sub(info.dli_fbase as usize)));
    }
    // SAFETY: the loader's terminated text.
    let symbol = unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy();
    Some(match address.wrapping_sub(info.dli_saddr as usize) {
        0 => format!("{file}({symbol})"),
        offset => format!("{file}({symbol}+{offset:#x})"),
    })
}

fn look_up(address: u64) -> Option<libc::Dl_info> {
    // The return address may be the first instruction of the next function, so the byte before it is looked up.
    at((address as usize).wrapping_sub(1))
}

/// The loader's data of an address.
fn at(address: usize) -> Option<libc::Dl_info> {
    let inside = std::ptr::without_provenance::<libc::c_void>(address);
    // SAFETY: zero is a valid Dl_info, and dladdr only reads the loader's lists.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let is_known = unsafe { libc::dladdr(inside, &raw mut info) } != 0 && !info.dli_fname.is_null();
    is_known.then_some(info)
}

/// Whether the address is in the program itself, which is never unloaded.
fn is_of_program(address: u64) -> bool {
    // SAFETY: reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) }.wrapping_add(1);
    look_up(address).zip(look_up(entry)).is_some_and(|(one, program)| one.dli_fbase == program.dli_fbase)
}

fn file(path: &[u8]) -> String {
    let path = Path::new(OsStr::from_bytes(path));
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
