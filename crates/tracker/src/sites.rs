//! Call sites: (path, line) or place in a module → number.
//!
//! Numbers are handed out in order and stay until [`Sites::clear`]. The durable key of a Ruby site is the text of its
//! path and its line. Addresses of paths become invalid with a garbage collection, so they are used only in the
//! per-thread cache ([`SiteCache`]), together with the generation in which they were seen. The key of a native site
//! is its module and the offset in it: a module that is unloaded and loaded again, at any address, has the same
//! sites.

mod cache;
mod index;
mod modules;
mod room;
mod site;
mod stacks;
mod strings;

use core::ffi::{CStr, c_char};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::counters::Counters;
use crate::lock::SpinLock;
use crate::mmap;
pub use cache::SiteCache;
use index::{Index, List};
use modules::ModuleEntry;
pub use modules::{Loaded, Place};
use room::Room;
use site::{Common, Rest, store_if_new};
pub use site::{Kind, Site, SiteObjects};
use stacks::Trie;
pub use stacks::{Line, MOST_FRAMES, StackCache, StackMemory, Tables};
use strings::{Strings, slice};

/// Most sites that a table can hold: the packed entries of the block table have 24 bits for the number.
pub const MOST_SITES: u32 = 1 << 24;
/// Bytes of a path that are kept. A longer path is cut.
pub const MAX_PATH_BYTES: usize = 16 * 1024;

const CHUNK_SHIFT: u32 = 10;
const SITES_PER_CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNKS: usize = (MOST_SITES as usize) >> CHUNK_SHIFT;

/// Sites that are mapped together.
#[derive(Debug)]
#[repr(C)]
struct Chunk {
    sites: [Common; SITES_PER_CHUNK],
    rests: [Rest; SITES_PER_CHUNK],
    objects: [SiteObjects; SITES_PER_CHUNK],
}

/// The number by which [`Sites::counters`] and a [`CounterCache`](crate::counters::CounterCache) know the objects of a
/// site. It differs in a low bit too, so that a line's objects and its blocks have places of their own in the cache.
#[must_use]
#[inline(always)]
pub const fn objects_of(site: u32) -> u32 {
    (site | OBJECTS) ^ APART
}

const OBJECTS: u32 = 1 << 31;
const APART: u32 = 1 << 6;
const _: () = assert!(MOST_SITES <= OBJECTS);

/// The interner. One `static` of it lives in the hook.
#[derive(Debug)]
pub struct Sites {
    chunks: [AtomicPtr<Chunk>; CHUNKS],
    count: AtomicU32,
    max_sites: AtomicU32,
    /// Whether sites have a [`Rest`] that is not that of native code.
    has_rests: AtomicBool,
    inner: SpinLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    sites: Index,
    paths: Index,
    strings: Strings,
    /// Each path is stored once: (pointer, length) by number, in a mapped array.
    path_list: List<PathEntry>,
    modules: Index,
    module_list: List<ModuleEntry>,
    trie: Trie,
    room: Room,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PathEntry {
    bytes: *const u8,
    len: u32,
    hash: u32,
}

// SAFETY: the pointers lead into mappings that belong to the interner and are used under its lock only.
unsafe impl Send for Inner {}

impl Sites {
    /// An interner that knows only the pseudo-sites' numbers, and has no room before [`Sites::init`]. It is all
    /// zeroes, because such statics take memory only where they are used.
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            count: AtomicU32::new(0),
            max_sites: AtomicU32::new(0),
            has_rests: AtomicBool::new(false),
            inner: SpinLock::new(Inner {
                sites: Index::new(),
                paths: Index::new(),
                strings: Strings::new(),
                path_list: List::new(),
                modules: Index::new(),
                module_list: List::new(),
                trie: Trie::new(),
                room: Room::none(),
            }),
        }
    }

    /// Sets the limits and makes the pseudo-sites 0 to `pseudo - 1`. Returns `false` when there is no memory.
    pub fn init(&self, max_sites: u32, max_bytes: usize, pseudo: u32) -> bool {
        self.max_sites.store(max_sites.clamp(pseudo + 1, MOST_SITES), Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if self.count.load(Ordering::Relaxed) >= pseudo {
            inner.room.limit(max_bytes);
            return true;
        }
        // The pseudo-sites have room in any case.
        inner.room.limit(usize::MAX);
        for _ in 0..pseudo {
            let Some(id) = self.append(&mut inner) else { return false };
            if let Some(site) = self.get(id) {
                site.kind.store(Kind::Pseudo as u32, Ordering::Relaxed);
            }
        }
        inner.room.limit(max_bytes);
        true
    }

    /// Number of sites, pseudo-sites included.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    fn chunk(&self, id: u32) -> Option<&Chunk> {
        let chunk = self.chunks.get((id >> CHUNK_SHIFT) as usize)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk of zeroed (valid) sites, which is unmapped only while the world is paused.
        unsafe { chunk.as_ref() }
    }

    /// The site of this number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<Site<'_>> {
        let (chunk, place) = (self.chunk(id)?, id as usize & (SITES_PER_CHUNK - 1));
        Some(Site { common: chunk.sites.get(place)?, rest: chunk.rests.get(place)? })
    }

    /// The counters of the objects of the site of this number.
    #[inline]
    pub fn objects(&self, id: u32) -> Option<&SiteObjects> {
        self.chunk(id)?.objects.get(id as usize & (SITES_PER_CHUNK - 1))
    }

    /// Growth counts from now on. The caller has paused the world.
    pub fn mark(&self) {
        self.has_rests.store(true, Ordering::Relaxed);
        for (site, objects) in self.all() {
            store_if_new(&site.rest.marked_bytes, site.counters.live_bytes());
            store_if_new(&objects.marked_bytes, objects.counters.live_bytes());
        }
    }

    /// All counters begin anew. The caller has paused the world.
    pub fn reset(&self) {
        for (site, objects) in self.all() {
            site.counters.reset();
            store_if_new(&site.rest.marked_bytes, 0);
            objects.reset();
        }
    }

    /// The same of objects alone.
    pub fn reset_objects(&self) {
        self.all().for_each(|(_, objects)| objects.reset());
    }

    fn all(&self) -> impl Iterator<Item = (Site<'_>, &SiteObjects)> {
        (0..self.count()).filter_map(|id| Some((self.get(id)?, self.objects(id)?)))
    }

    /// Bytes of [`mmap::mapped_bytes`] that have no memory: they are reserved for objects, if none is
    /// tracked, for whole stacks and for marks. (Native sites use a page or two of them.)
    pub fn unused_bytes(&self, tracks_objects: bool) -> usize {
        let rests = if self.has_rests.load(Ordering::Relaxed) { 0 } else { size_of::<Rest>() };
        let objects = if tracks_objects { 0 } else { size_of::<SiteObjects>() };
        (self.count() as usize).next_multiple_of(SITES_PER_CHUNK) * (rests + objects)
    }

    /// The counters of this site, or of its objects ([`objects_of`]).
    #[inline]
    pub fn counters(&self, id: u32) -> Option<&Counters> {
        if id & OBJECTS == 0 {
            self.get(id).map(|site| &site.common.counters)
        } else {
            self.objects((id ^ APART) & !OBJECTS).map(|objects| &objects.counters)
        }
    }

    /// The number of a Ruby line, or `None` when the limits are reached.
    ///
    /// # Safety
    /// `path` must point to a NUL-terminated string that stays in place during the call.
    #[cold]
    pub unsafe fn ruby(&self, path: *const c_char, line: u32) -> Option<u32> {
        // SAFETY: passed on from the caller.
        self.ruby_line(unsafe { CStr::from_ptr(path) }.to_bytes(), line)
    }

    /// The same, for a path that is given as text.
    #[cold]
    pub fn ruby_line(&self, path: &[u8], line: u32) -> Option<u32> {
        let bytes = path.get(..MAX_PATH_BYTES).unwrap_or(path);
        let path_hash = hash_bytes(bytes);
        let mut inner = self.inner.lock_in_time()?;
        let path_id = self.path_id(&mut inner, bytes, path_hash)?;
        let entry = inner.path_list.get(path_id)?;
        let hash = mix((u64::from(path_id) << 32) | u64::from(line)) as u32;
        let found = inner.sites.find(hash, |id| {
            self.get(id).is_some_and(|site| {
                site.hash.load(Ordering::Relaxed) == hash
                    && site.kind() == Kind::Ruby
                    && !site.is_stack()
                    && site.line() == line
                    && ptr::eq(site.path().0, entry.bytes)
            })
        });
        if found.is_some() {
            return found;
        }
        let id = self.add(&mut inner, hash)?;
        let site = self.get(id)?;
        site.kind.store(Kind::Ruby as u32, Ordering::Relaxed);
        site.line.store(line, Ordering::Relaxed);
        site.path.store(entry.bytes.cast_mut(), Ordering::Relaxed);
        site.path_len.store(entry.len, Ordering::Relaxed);
        Some(id)
    }

    /// The number of a place in native code, or `None` when the limits are reached. `place` is the module and offset
    /// of the return address, if they are known.
    #[cold]
    pub fn native(&self, address: usize, place: Option<Place<'_>>) -> Option<u32> {
        let mut inner = self.inner.lock_in_time()?;
        let module = place.and_then(|place| inner.module(&place));
        let (number, offset) = match (&module, place) {
            (Some((number, _)), Some(place)) => (*number, place.offset),
            _ => (0, address as u64),
        };
        let hash = mix(mix(u64::from(number)) ^ offset) as u32;
        let found = inner.sites.find(hash, |id| {
            self.get(id).is_some_and(|site| {
                site.kind() == Kind::Native && site.module() == number && site.offset() == offset
            })
        });
        if let Some(id) = found {
            self.get(id)?.rest.address.store(address as u64, Ordering::Relaxed);
            return found;
        }
        let id = self.add(&mut inner, hash)?;
        let site = self.get(id)?;
        site.kind.store(Kind::Native as u32, Ordering::Relaxed);
        site.rest.address.store(address as u64, Ordering::Relaxed);
        site.rest.offset.store(offset, Ordering::Relaxed);
        if let Some((number, entry)) = module {
            site.line.store(number, Ordering::Relaxed);
            site.path.store(entry.path.cast_mut(), Ordering::Relaxed);
            site.path_len.store(entry.path_len, Ordering::Relaxed);
        }
        Some(id)
    }

    /// Records that a module is loaded at `base`, during one walk over all modules. Modules without sites are
    /// ignored.
    pub fn note_loaded(&self, walk: u32, path: &[u8], build: u64, base: u64) {
        let mut inner = self.inner.lock();
        if let Some(number) = inner.find_module(path, build) {
            inner.module_list.update(number - 1, |entry| (entry.walk, entry.base) = (walk, base));
        }
    }

    /// The module of a native site, if it is known, as it was at this walk or a later one.
    pub fn loaded(&self, site: Site<'_>, walk: u32) -> Option<Loaded> {
        let number = site.module().checked_sub(1)?;
        let entry = self.inner.lock().module_list.get(number)?;
        let is_loaded = entry.walk.wrapping_sub(walk) < 1 << 31;
        Some(Loaded { build: entry.build, base: is_loaded.then_some(entry.base) })
    }

    fn path_id(&self, inner: &mut Inner, bytes: &[u8], hash: u64) -> Option<u32> {
        let hash = hash as u32;
        let list = &inner.path_list;
        let found = inner.paths.find(hash, |id| {
            list.get(id).is_some_and(|entry| {
                // SAFETY: the entry's bytes were copied into the string arena with this length.
                entry.hash == hash && unsafe { slice(entry.bytes, entry.len) } == bytes
            })
        });
        if found.is_some() {
            return found;
        }
        if !inner.path_list.reserve(&mut inner.room) || !inner.paths.reserve(&mut inner.room) {
            return None;
        }
        let copy = inner.strings.add(bytes, &mut inner.room)?;
        let entry = PathEntry { bytes: copy, len: bytes.len() as u32, hash };
        let id = inner.path_list.push(entry, &mut inner.room)?;
        inner.paths.add(hash, id, &mut inner.room).then_some(id)
    }

    /// Makes a new site and its entry in the index.
    fn add(&self, inner: &mut Inner, hash: u32) -> Option<u32> {
        let full = self.count.load(Ordering::Relaxed) >= self.max_sites.load(Ordering::Relaxed);
        // The index comes first: a site without an index entry would get a new number each time.
        if full || !inner.sites.reserve(&mut inner.room) {
            return None;
        }
        let id = self.append(inner)?;
        inner.sites.add(hash, id, &mut inner.room);
        self.get(id)?.hash.store(hash, Ordering::Relaxed);
        Some(id)
    }

    fn append(&self, inner: &mut Inner) -> Option<u32> {
        let id = self.count.load(Ordering::Relaxed);
        let chunk = self.chunks.get((id >> CHUNK_SHIFT) as usize)?;
        if chunk.load(Ordering::Relaxed).is_null() {
            let len = size_of::<Chunk>();
            if !inner.room.take(len, 0) {
                return None;
            }
            let Some(memory) = mmap::map(len) else {
                inner.room.give_back(len);
                return None;
            };
            // Release: a thread that sees the chunk sees its zeroes.
            chunk.store(memory.as_ptr().cast(), Ordering::Release);
        }
        self.count.store(id + 1, Ordering::Release);
        Some(id)
    }

    /// Forgets everything but the limits. The caller has paused the world and discards all caches.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        for chunk in &self.chunks {
            let Some(memory) = NonNull::new(chunk.swap(ptr::null_mut(), Ordering::AcqRel)) else { break };
            // SAFETY: mapped in `append` with this length; no thread reads sites while the world is paused.
            unsafe { mmap::unmap(memory.cast(), size_of::<Chunk>()) };
        }
        self.count.store(0, Ordering::Release);
        self.has_rests.store(false, Ordering::Relaxed);
        inner.sites.clear();
        inner.paths.clear();
        inner.path_list.clear();
        inner.modules.clear();
        inner.module_list.clear();
        inner.trie.clear();
        inner.strings.clear();
        inner.room.clear();
    }
}

impl Default for Sites {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a over eight bytes at a time, then mixed. Paths are short, and this is not on the fast path.
fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    }
    for &byte in chunks.remainder() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(hash)
}

/// The finalizer of `SplitMix64` (Steele, Lea, Flood 2014): every input bit reaches every output bit.
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
