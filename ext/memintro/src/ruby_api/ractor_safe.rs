//! Which methods may be called from any Ractor.

use crate::lookup::look_up;

/// Makes the methods that `define` defines callable from any Ractor. Ruby refuses all others outside of the main
/// Ractor.
pub(super) fn ractor_safe<T>(define: impl FnOnce() -> T) -> T {
    // SAFETY: a function of this type in every Ruby that has it.
    let set = unsafe { look_up!(c"rb_ext_ractor_safe", unsafe extern "C" fn(bool)) };
    let Some(set) = set else { return define() };
    // SAFETY: a flag of the file being loaded, for methods defined until it is taken back.
    unsafe { set(true) };
    let answer = define();
    // SAFETY: as above.
    unsafe { set(false) };
    answer
}
