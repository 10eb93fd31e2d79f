//! A growing array, and an index from hashes to numbers, each in mappings of its own.

use core::ptr::{self, NonNull};

use super::room::Room;
use crate::mmap;

const FIRST_INDEX_SLOTS: usize = 4096;

/// A growing array in a mapping of its own.
#[derive(Debug)]
pub(super) struct List<T> {
    memory: *mut T,
    len: usize,
    capacity: usize,
}

impl<T: Copy> List<T> {
    pub(super) const fn new() -> Self {
        Self { memory: ptr::null_mut(), len: 0, capacity: 0 }
    }

    pub(super) fn get(&self, index: u32) -> Option<T> {
        // SAFETY: everything below `len` was written.
        ((index as usize) < self.len).then(|| unsafe { *self.memory.add(index as usize) })
    }

    pub(super) fn all(&self) -> &[T] {
        // SAFETY: everything below `len` was written; an empty list has no memory.
        if self.len == 0 { &[] } else { unsafe { core::slice::from_raw_parts(self.memory, self.len) } }
    }

    pub(super) fn update(&mut self, index: u32, change: impl FnOnce(&mut T)) {
        if (index as usize) < self.len {
            // SAFETY: as above, and no other thread can see it.
            change(unsafe { &mut *self.memory.add(index as usize) });
        }
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self, room: &mut Room) -> bool {
        if self.len < self.capacity {
            return true;
        }
        let capacity = if self.capacity == 0 { 1024 } else { self.capacity * 2 };
        let (before, after) = (self.capacity * size_of::<T>(), capacity * size_of::<T>());
        if !room.take(after, before) {
            return false;
        }
        let Some(memory) = mmap::map(after) else {
            room.give_back(after - before);
            return false;
        };
        let memory: *mut T = memory.as_ptr().cast();
        if self.len > 0 {
            // SAFETY: the new mapping is larger and does not overlap the old one.
            unsafe { ptr::copy_nonoverlapping(self.memory, memory, self.len) };
        }
        self.release();
        self.memory = memory;
        self.capacity = capacity;
        true
    }

    pub(super) fn push(&mut self, value: T, room: &mut Room) -> Option<u32> {
        if !self.reserve(room) {
            return None;
        }
        // SAFETY: `len` is below `capacity`.
        unsafe { self.memory.add(self.len).write(value) };
        self.len += 1;
        u32::try_from(self.len - 1).ok()
    }

    fn release(&mut self) {
        if let Some(memory) = NonNull::new(self.memory) {
            // SAFETY: mapped in `reserve` with this length; the list is its only user.
            unsafe { mmap::unmap(memory.cast(), self.capacity * size_of::<T>()) };
        }
    }

    pub(super) fn clear(&mut self) {
        self.release();
        *self = Self::new();
    }
}

/// Open addressing from a hash to a number. The owner of the number compares the keys.
#[derive(Debug)]
pub(super) struct Index {
    slots: *mut (u32, u32),
    capacity: usize,
    len: usize,
}

impl Index {
    pub(super) const fn new() -> Self {
        Self { slots: ptr::null_mut(), capacity: 0, len: 0 }
    }

    /// Slots hold (hash, number + 1); 0 is an empty one.
    fn slot(&self, position: usize) -> *mut (u32, u32) {
        // SAFETY: the capacity is a power of two, so that the mask keeps the position inside.
        unsafe { self.slots.add(position & (self.capacity - 1)) }
    }

    pub(super) fn find(&self, hash: u32, equal: impl Fn(u32) -> bool) -> Option<u32> {
        if self.capacity == 0 {
            return None;
        }
        let mut position = hash as usize;
        loop {
            // SAFETY: `slot` stays inside the mapping, and every slot is initialised (zero).
            let (slot_hash, number) = unsafe { *self.slot(position) };
            if number == 0 {
                return None;
            }
            if slot_hash == hash && equal(number - 1) {
                return Some(number - 1);
            }
            position = position.wrapping_add(1);
        }
    }

    /// Makes room for one more by doubling at three quarters full, so that a search always ends.
    pub(super) fn reserve(&mut self, room: &mut Room) -> bool {
        if (self.len + 1) * 4 <= self.capacity * 3 {
            return true;
        }
        let capacity = if self.capacity == 0 { FIRST_INDEX_SLOTS } else { self.capacity * 2 };
        let more = (capacity - self.capacity) * size_of::<(u32, u32)>();
        if !room.take(more, 0) {
            return false;
        }
        let Some(memory) = mmap::map(capacity * size_of::<(u32, u32)>()) else {
            room.give_back(more);
            return false;
        };
        let old = core::mem::replace(self, Self { slots: memory.as_ptr().cast(), capacity, len: 0 });
        for position in 0..old.capacity {
            // SAFETY: position is below the old capacity.
            let (hash, number) = unsafe { *old.slots.add(position) };
            if number != 0 {
                self.place(hash, number);
            }
        }
        old.release();
        true
    }

    fn place(&mut self, hash: u32, number: u32) {
        let mut position = hash as usize;
        // SAFETY: `slot` stays inside the mapping; there is an empty slot, because `reserve` keeps a quarter free.
        while unsafe { (*self.slot(position)).1 } != 0 {
            position = position.wrapping_add(1);
        }
        // SAFETY: as above.
        unsafe { *self.slot(position) = (hash, number) };
        self.len += 1;
    }

    pub(super) fn add(&mut self, hash: u32, id: u32, room: &mut Room) -> bool {
        if !self.reserve(room) {
            return false;
        }
        self.place(hash, id + 1);
        true
    }

    fn release(&self) {
        if let Some(memory) = NonNull::new(self.slots) {
            // SAFETY: mapped in `reserve` with this length; the index is its only user.
            unsafe { mmap::unmap(memory.cast(), self.capacity * size_of::<(u32, u32)>()) };
        }
    }

    pub(super) fn clear(&mut self) {
        self.release();
        *self = Self::new();
    }
}
