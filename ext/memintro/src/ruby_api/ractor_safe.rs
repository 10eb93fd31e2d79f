//! Which methods may be called from any Ractor.

/// Methods that `define` defines may; all others are refused by Ruby in any but the main one.
pub(super) fn ractor_safe<T>(define: impl FnOnce() -> T) -> T {
    // SAFETY: a flag of the file being loaded, for methods defined until it is taken back.
    unsafe { rb_sys::rb_ext_ractor_safe(true) };
    let answer = define();
    // SAFETY: as above.
    unsafe { rb_sys::rb_ext_ractor_safe(false) };
    answer
}
