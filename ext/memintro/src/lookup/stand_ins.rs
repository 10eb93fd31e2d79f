//! Replaces two functions that magnus is linked against although they are not in Ruby's stable C API. `build.rs`
//! makes the linker use these, so that a Ruby without them still loads the extension.
//!
//! magnus calls them before it calls Ruby. memintro calls magnus only where Ruby has called memintro, so "yes" is
//! right where the answer is not known.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::look_up;

type Question = unsafe extern "C" fn() -> c_int;

/// Stands in for `ruby_thread_has_gvl_p`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memintro_thread_has_gvl() -> c_int {
    static FOUND: OnceLock<Option<Question>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let found = FOUND.get_or_init(|| unsafe { look_up!(c"ruby_thread_has_gvl_p", Question) });
    // SAFETY: may be called on any thread.
    found.map_or(1, |has_gvl| unsafe { has_gvl() })
}

/// Stands in for `ruby_native_thread_p`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memintro_is_ruby_thread() -> c_int {
    static FOUND: OnceLock<Option<Question>> = OnceLock::new();
    // SAFETY: a function of this type in every Ruby that has it.
    let found = FOUND.get_or_init(|| unsafe { look_up!(c"ruby_native_thread_p", Question) });
    // SAFETY: may be called on any thread.
    found.map_or(1, |is_ruby_thread| unsafe { is_ruby_thread() })
}
