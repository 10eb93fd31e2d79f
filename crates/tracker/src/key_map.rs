//! A small hash table in memory of its own: number → value.
//!
//! Rule for neighbours: a user of one holds a lock around it, or is its only user.

use core::ptr::{self, NonNull};

use crate::mmap;

const FIRST_SLOTS: usize = 256;

/// Key 0 is an empty slot.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Slot<T> {
    key: usize,
    value: T,
}

/// Open addressing with linear probing. Removal leaves no gap. All-zero memory is an empty one.
#[derive(Debug)]
pub(crate) struct KeyMap<T> {
    slots: *mut Slot<T>,
    capacity: usize,
    len: usize,
}

// SAFETY: the pointer leads into a mapping of its own, used by one thread at a time.
unsafe impl<T: Send> Send for KeyMap<T> {}

impl<T: Copy> KeyMap<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: ptr::null_mut(), capacity: 0, len: 0 }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.capacity * size_of::<Slot<T>>()
    }

    fn home(&self, key: usize) -> usize {
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.capacity - 1)
    }

    fn slot(&self, position: usize) -> *mut Slot<T> {
        // SAFETY: the capacity is a power of two, so that the mask keeps the position inside.
        unsafe { self.slots.add(position & (self.capacity - 1)) }
    }

    /// The slot of this key, or the empty slot where it would be inserted. There is always an empty one.
    fn find(&self, key: usize) -> (usize, bool) {
        let mut position = self.home(key);
        loop {
            // SAFETY: `slot` stays inside the mapping, whose slots are initialised.
            let at = unsafe { (*self.slot(position)).key };
            if at == key || at == 0 {
                return (position & (self.capacity - 1), at == key);
            }
            position = position.wrapping_add(1);
        }
    }

    /// Inserts a value, and returns the one that it replaces. `None`: nothing has changed, because the budget or the
    /// kernel's memory is used up.
    pub(crate) fn put(&mut self, key: usize, value: T, max_bytes: usize) -> Option<Option<T>> {
        if key == 0 || !self.reserve(max_bytes) {
            return None;
        }
        let (position, found) = self.find(key);
        // SAFETY: as in `find`.
        let old = unsafe { self.slot(position).replace(Slot { key, value }) };
        if found {
            return Some(Some(old.value));
        }
        self.len = self.len.wrapping_add(1);
        Some(None)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: usize) -> Option<T> {
        if self.len == 0 || key == 0 {
            return None;
        }
        let (position, found) = self.find(key);
        // SAFETY: as in `find`.
        found.then(|| unsafe { (*self.slot(position)).value })
    }

    /// Removes a value.
    pub(crate) fn take(&mut self, key: usize) -> Option<T> {
        if self.len == 0 || key == 0 {
            return None;
        }
        let (mut gap, found) = self.find(key);
        if !found {
            return None;
        }
        // SAFETY: as in `find`.
        let value = unsafe { (*self.slot(gap)).value };
        let mut position = gap;
        loop {
            position = position.wrapping_add(1) & (self.capacity - 1);
            // SAFETY: as in `find`.
            let next = unsafe { *self.slot(position) };
            if next.key == 0 {
                break;
            }
            // The entry may move into the gap unless its home is behind the gap.
            let from_home = position.wrapping_sub(self.home(next.key)) & (self.capacity - 1);
            if from_home >= position.wrapping_sub(gap) & (self.capacity - 1) {
                // SAFETY: as in `find`.
                unsafe { self.slot(gap).write(next) };
                gap = position;
            }
        }
        // SAFETY: as above.
        unsafe { (*self.slot(gap)).key = 0 };
        self.len = self.len.wrapping_sub(1);
        Some(value)
    }

    /// Makes room for one more entry, by doubling at three quarters full.
    fn reserve(&mut self, max_bytes: usize) -> bool {
        if self.len.saturating_add(1).saturating_mul(4) <= self.capacity.saturating_mul(3) {
            return true;
        }
        let capacity = if self.capacity == 0 { FIRST_SLOTS } else { self.capacity.saturating_mul(2) };
        let bytes = capacity.saturating_mul(size_of::<Slot<T>>());
        // Both tables exist while it grows.
        if bytes > max_bytes && self.capacity > 0 {
            return false;
        }
        let Some(memory) = mmap::map(bytes) else { return false };
        let old = core::mem::replace(self, Self { slots: memory.as_ptr().cast(), capacity, len: 0 });
        old.for_each(&mut |key, value| {
            let (position, _) = self.find(key);
            // SAFETY: `slot` stays inside the new mapping, which has room for all.
            unsafe { self.slot(position).write(Slot { key, value: *value }) };
        });
        self.len = old.len;
        old.release();
        true
    }

    /// Visits each entry.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(usize, &T)) {
        for position in 0..self.capacity {
            // SAFETY: the position is below the capacity.
            let slot = unsafe { &*self.slots.add(position) };
            if slot.key != 0 {
                visit(slot.key, &slot.value);
            }
        }
    }

    fn release(&self) {
        if let Some(memory) = NonNull::new(self.slots) {
            // SAFETY: mapped in `reserve` with this length; there is no other user.
            unsafe { mmap::unmap(memory.cast(), self.bytes()) };
        }
    }

    /// Forgets everything and unmaps the memory.
    pub(crate) fn clear(&mut self) {
        self.release();
        *self = Self::new();
    }
}
