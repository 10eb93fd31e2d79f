//! Which slots were found, and what they held. Its memory comes from the kernel, never from the heap that is tracked.

use core::ffi::{CStr, c_char};
use core::ptr::{self, NonNull};

use memintro_abi::{PatchEntry, SlotState};
use memintro_tracker::mmap;

use super::judge::SlotValue;
use super::modules::Changes;
use crate::functions::FUNCTIONS;
use crate::real::Stub;

/// One slot for one of the functions that are taken over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) slot: u64,
    /// The value before it was patched.
    pub(super) original: usize,
    /// The value when it was last read.
    pub(super) value: usize,
    /// Index into [`Book::modules`].
    pub(super) module: u32,
    /// Index into [`FUNCTIONS`].
    pub(super) function: u8,
    /// How its value was judged when it was found.
    pub(super) slot_value: SlotValue,
    pub(super) state: SlotState,
}

/// One module of the loader's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) base: u64,
    /// Where its path begins in [`Book::paths`].
    pub(super) path: usize,
    pub(super) is_malformed: bool,
}

/// Everything that is known. Records of a module follow each other, in the order of its relocations.
#[derive(Debug)]
pub(super) struct Book {
    /// The stubs that are written into slots, in the order of [`FUNCTIONS`].
    pub(super) stubs: &'static [Stub],
    /// The functions that are patched, one bit each.
    pub(super) wanted: u64,
    /// The loader's counters when the list was last walked.
    pub(super) changes: Changes,
    /// Some module could not be completed, so the next refresh walks all of them.
    pub(super) is_pending: bool,
    /// Successive walks that left some module incomplete.
    pub(super) retries: u32,
    pub(super) records: List<Record>,
    pub(super) modules: List<Known>,
    paths: List<u8>,
}

impl Book {
    pub(super) const fn new() -> Self {
        Self {
            stubs: &[],
            wanted: 0,
            changes: Changes { loaded: 0, unloaded: 0 },
            is_pending: false,
            retries: 0,
            records: List::new(),
            modules: List::new(),
            paths: List::new(),
        }
    }

    /// Forgets everything and unmaps the memory.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Forgets the modules, before a walk that records them again.
    pub(super) fn forget_modules(&mut self) {
        self.is_pending = false;
        self.modules.truncate(0);
        self.paths.truncate(0);
    }

    /// Marks the records as incomplete, so that the next refresh walks all modules.
    pub(super) fn distrust(&mut self) {
        self.is_pending = true;
    }

    /// Records a module; returns false when there is no memory.
    pub(super) fn add_module(&mut self, base: u64, path: &CStr, is_malformed: bool) -> bool {
        let at = self.paths.len();
        let is_program = path.is_empty();
        let written =
            if is_program { self.add_own_path() } else { self.paths.extend(path.to_bytes_with_nul()) };
        written && self.modules.push(Known { base, path: at, is_malformed })
    }

    /// The loader leaves the program's own name empty.
    fn add_own_path(&mut self) -> bool {
        let mut path = [0_u8; 1024];
        // SAFETY: writes at most the buffer's length.
        let len = unsafe {
            libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len().saturating_sub(1))
        };
        let path = usize::try_from(len).ok().and_then(|len| path.get(..len)).unwrap_or(b"(program)");
        self.paths.extend(path) && self.paths.push(0)
    }

    /// All records, as `doctor` shows them. Paths are valid during the call.
    pub(super) fn entries(&self, mut each: impl FnMut(PatchEntry)) {
        let path =
            |known: &Known| self.paths.as_slice().get(known.path..).map_or(ptr::null(), <[u8]>::as_ptr);
        for known in self.modules.as_slice().iter().filter(|known| known.is_malformed) {
            each(PatchEntry {
                module: path(known).cast::<c_char>(),
                symbol: ptr::null(),
                slot: 0,
                value: 0,
                state: SlotState::MALFORMED,
            });
        }
        for record in self.records.as_slice() {
            let known = self.modules.as_slice().get(record.module as usize);
            let function = FUNCTIONS.get(usize::from(record.function));
            if let Some((known, function)) = known.zip(function) {
                each(PatchEntry {
                    module: path(known).cast::<c_char>(),
                    symbol: function.name.as_ptr(),
                    slot: record.slot,
                    value: record.value as u64,
                    state: record.state,
                });
            }
        }
    }
}

/// A growing array of plain values.
#[derive(Debug)]
pub(super) struct List<T: Copy> {
    items: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: the list owns its mapping.
unsafe impl<T: Copy + Send> Send for List<T> {}

impl<T: Copy> List<T> {
    pub(super) const fn new() -> Self {
        Self { items: NonNull::dangling(), len: 0, capacity: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` items have been written.
        unsafe { core::slice::from_raw_parts(self.items.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and no other thread can see them.
        unsafe { core::slice::from_raw_parts_mut(self.items.as_ptr(), self.len) }
    }

    /// Returns false when the kernel has no memory.
    pub(super) fn push(&mut self, item: T) -> bool {
        self.extend(&[item])
    }

    /// As [`List::push`], for several.
    pub(super) fn extend(&mut self, items: &[T]) -> bool {
        let Some(len) = self.len.checked_add(items.len()) else { return false };
        if len > self.capacity && !self.grow(len) {
            return false;
        }
        // SAFETY: there is room for them behind the first `len` items, and `items` is borrowed from elsewhere.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), self.items.as_ptr().add(self.len), items.len()) };
        self.len = len;
        true
    }

    fn grow(&mut self, least: usize) -> bool {
        const FIRST_BYTES: usize = 64 * 1024;
        let doubled = self.capacity.saturating_mul(2).max(FIRST_BYTES / size_of::<T>());
        let capacity = doubled.max(least);
        let Some(bytes) = capacity.checked_mul(size_of::<T>()) else { return false };
        let Some(mapped) = mmap::map(bytes) else { return false };
        let items = mapped.cast::<T>();
        // SAFETY: the new mapping is larger and apart from the old one; mappings are aligned to pages.
        unsafe { ptr::copy_nonoverlapping(self.items.as_ptr(), items.as_ptr(), self.len) };
        self.unmap();
        (self.items, self.capacity) = (items, capacity);
        true
    }

    fn unmap(&mut self) {
        if self.capacity > 0 {
            // SAFETY: exactly the mapping that `grow` made.
            unsafe { mmap::unmap(self.items.cast(), self.capacity.saturating_mul(size_of::<T>())) };
        }
    }
}

impl<T: Copy> Drop for List<T> {
    fn drop(&mut self) {
        self.unmap();
    }
}
