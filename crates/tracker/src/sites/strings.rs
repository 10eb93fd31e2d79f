//! Copies of the paths of call sites.

use core::ptr::{self, NonNull};

use super::room::Room;
use crate::mmap;

const STRING_CHUNK_BYTES: usize = 256 * 1024;

/// Copies of paths, packed into mappings. Each mapping begins with the address and length of the previous one.
#[derive(Debug)]
pub(super) struct Strings {
    chunk: *mut StringChunk,
    /// Free bytes at the end of the mapping.
    left: usize,
}

#[derive(Debug)]
#[repr(C)]
struct StringChunk {
    before: *mut StringChunk,
    len: usize,
}

impl Strings {
    pub(super) const fn new() -> Self {
        Self { chunk: ptr::null_mut(), left: 0 }
    }

    pub(super) fn add(&mut self, text: &[u8], room: &mut Room) -> Option<*const u8> {
        if text.len() > self.left {
            if !room.take(STRING_CHUNK_BYTES, 0) {
                return None;
            }
            let Some(memory) = mmap::map(STRING_CHUNK_BYTES) else {
                room.give_back(STRING_CHUNK_BYTES);
                return None;
            };
            let memory: *mut StringChunk = memory.as_ptr().cast();
            // SAFETY: the fresh mapping is large enough for the header.
            unsafe { memory.write(StringChunk { before: self.chunk, len: STRING_CHUNK_BYTES }) };
            self.chunk = memory;
            self.left = STRING_CHUNK_BYTES - size_of::<StringChunk>();
        }
        // SAFETY: the text fits into what is left at the end (paths are far shorter than a chunk).
        let copy = unsafe { self.chunk.cast::<u8>().add(STRING_CHUNK_BYTES - self.left) };
        // SAFETY: as above, and the arena does not overlap the caller's text.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len()) };
        self.left -= text.len();
        Some(copy)
    }

    pub(super) fn clear(&mut self) {
        while let Some(chunk) = NonNull::new(self.chunk) {
            // SAFETY: every chunk begins with its header.
            let StringChunk { before, len } = unsafe { chunk.read() };
            // SAFETY: mapped in `add` with this length; no thread reads names while the world is paused.
            unsafe { mmap::unmap(chunk.cast(), len) };
            self.chunk = before;
        }
        self.left = 0;
    }
}

/// # Safety
/// `bytes` and `len` must be what [`Strings::add`] returned and was given.
pub(super) unsafe fn slice<'a>(bytes: *const u8, len: u32) -> &'a [u8] {
    // SAFETY: promised by the caller.
    unsafe { core::slice::from_raw_parts(bytes, len as usize) }
}
