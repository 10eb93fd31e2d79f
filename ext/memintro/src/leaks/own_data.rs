//! Where statics of memintro's own libraries are, to the byte: the kernel joins what comes behind them with memory that is
//! anybody's, such as the thread-local memory of the main thread.

use std::ffi::{CStr, c_int, c_void};

use memintro_analysis::account::PAGE;
use memintro_analysis::leaks::is_own_library;

const MOST: usize = 8;

/// Ranges in the order of their addresses. It takes no block.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnData {
    ranges: [(usize, usize); MOST],
    used: usize,
}

impl OwnData {
    /// Asks the loader.
    pub(super) fn find() -> Self {
        let mut found = Self::default();
        // SAFETY: the callback fits the record, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
        found.ranges.get_mut(..found.used).unwrap_or_default().sort_unstable();
        found
    }

    pub(super) fn ranges(&self) -> &[(usize, usize)] {
        self.ranges.get(..self.used).unwrap_or_default()
    }
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's own record, and the one above.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<OwnData>()) };
    if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's terminated text.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if !is_own_library(name) {
        return 0;
    }
    // SAFETY: as many headers as the loader says.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers.iter().filter(|one| one.p_type == libc::PT_LOAD && one.p_flags & libc::PF_W != 0) {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize).next_multiple_of(PAGE);
        if let Some(place) = found.ranges.get_mut(found.used) {
            *place = (start & !(PAGE - 1), end);
            found.used += 1;
        }
    }
    0
}
