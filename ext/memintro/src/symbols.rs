//! Names for return addresses: `libfoo.so(symbol+0x1c)`.

use std::ffi::CStr;
use std::path::Path;

/// Names a native call site. Asks the loader, so never from inside malloc; costs about a microsecond.
pub(crate) fn name(address: u64) -> String {
    // The return address may be the first of the next function: the call is before it.
    let inside = (address as usize).wrapping_sub(1) as *const libc::c_void;
    // SAFETY: zero is a valid Dl_info, and dladdr only reads the loader's lists.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::dladdr(inside, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return format!("(unloaded)({address:#x})");
    }
    // SAFETY: the loader's terminated text.
    let module = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    let file =
        Path::new(&module).file_name().map_or(module.clone(), |file| file.to_string_lossy().into_owned());
    if info.dli_sname.is_null() {
        return format!("{file}(+{:#x})", address.wrapping_sub(info.dli_fbase as u64));
    }
    // SAFETY: the loader's terminated text.
    let symbol = unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy();
    format!("{file}({symbol}+{:#x})", address.wrapping_sub(info.dli_saddr as u64))
}
