//! Releases the pages of code that only loading, a start or a report has needed: this library's, the hook's, those of
//! the library that unwinds panics, and the unwind tables of Ruby's library.
//!
//! The kernel maps sixteen pages around each page that is touched. Definitions and a start touch code all over a
//! library, so they would leave most of it resident: half a megabyte in every process that requires memintro, and a
//! third of one more in every process that it follows.

use std::ffi::{c_char, c_int, c_void};

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Phdr as Segment;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Phdr as Segment;

use crate::hook_link;

// What the linker knows of this library: where it begins.
unsafe extern "C" {
    static __ehdr_start: c_char;
}

// libgcc, which unwinds: it is loaded for panics, which do not happen.
unsafe extern "C" {
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// After this library was loaded: its own pages, and libgcc's if it was loaded for this one, or for a hook that was
/// preloaded. Where others use it, its pages are theirs.
pub(crate) fn give_back_what_loading_took() {
    // This also is the one search for a hook: later it would bring back the pages that it reads.
    let hook = hook_link::found().map(|api| (&raw const *api).addr());
    give_back(Walk { takes_other: false, hook, ..Walk::to(_Unwind_GetIP as *const () as usize) });
}

/// After a start or a look: this library's, the hook's, and the unwind tables of Ruby's, which native callers are told
/// by. The argument is any address in the hook.
pub(crate) fn give_back_with(hook: *const c_void) {
    let hook = hook.addr();
    give_back(Walk {
        unwound: Some(rb_sys::rb_gc as *const () as usize),
        hook: Some(hook),
        ..Walk::to(hook)
    });
}

/// Does what needs other pages of code than what comes before it and what comes after it, so that at no time all are
/// resident.
#[inline(never)]
pub(crate) fn apart<R>(hook: *const c_void, work: impl FnOnce() -> R) -> R {
    give_back_with(hook);
    let answer = work();
    give_back_with(hook);
    answer
}

fn give_back(mut walk: Walk) {
    // SAFETY: a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    // SAFETY: the callback gets this object, which outlives the call, and does not call the loader.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
    // Nothing else comes after these calls, for it would bring pages back. The first ones come to nothing if they were made
    // before.
    advise(walk.behind_heads.get(..walk.headed), page, libc::MADV_RANDOM);
    advise(walk.ranges.get(..walk.found), page, libc::MADV_DONTNEED);
}

/// Gives advice about ranges of files that are mapped and never written.
#[inline(always)]
fn advise(ranges: Option<&[(usize, usize)]>, page: usize, advice: c_int) {
    for &(begin, end) in ranges.unwrap_or_default() {
        // A page at the end may be shared with data that is written.
        let (begin, end) = (begin & !(page - 1), end & !(page - 1));
        // SAFETY: headers, constants and code are mapped from the file and never written, for there are no relocations
        // in them; to read them again brings the same bytes, from the kernel's page cache a microsecond later. A kernel
        // that refuses changes nothing.
        unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(begin), end.saturating_sub(begin), advice);
        }
    }
}

/// Segments of two libraries that are not written: one or two of each, or four where headers, constants, code and tables
/// are apart. And the tables of one.
const RANGES: usize = 9;

/// How much of each library's first segment is needed while a process is followed: the symbols, in which the loader looks
/// for each library that it loads, and of the hook also the constants behind them. What comes then is not needed. Other
/// advice for it makes it a mapping of its own, and the kernel maps no pages around a touched one beyond a mapping's end: so
/// these pages stay resident, and no more.
const HEAD_BYTES: usize = 12 << 10;
const HEAD_BYTES_OF_HOOK: usize = 44 << 10;

/// Over the libraries of the process, in the order in which they were loaded.
struct Walk {
    /// An address in this library, and one in the other whose pages are given back.
    own: usize,
    other: usize,
    /// An address in the library whose unwind tables are given back.
    unwound: Option<usize>,
    /// An address in the hook, if the other library may have been loaded for it.
    hook: Option<usize>,
    /// Whether the other library's pages are given back wherever it comes: otherwise only if it was loaded after this
    /// library or the hook.
    takes_other: bool,
    ranges: [(usize, usize); RANGES],
    found: usize,
    /// What comes behind the heads of this library and of the hook, in the same segment.
    behind_heads: [(usize, usize); 2],
    headed: usize,
}

impl Walk {
    /// Gives back this library's pages, and those of the one that holds the address.
    fn to(other: usize) -> Self {
        let own = (&raw const __ehdr_start).addr();
        let (ranges, behind_heads) = ([(0, 0); RANGES], [(0, 0); 2]);
        let (unwound, hook, found, headed) = (None, None, 0, 0);
        Self { own, other, unwound, hook, takes_other: true, ranges, found, behind_heads, headed }
    }

    fn library(&mut self, base: usize, segments: &[Segment]) {
        let loaded = || segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let place = |segment: &Segment| {
            let begin = base.wrapping_add(segment.p_vaddr as usize);
            (begin, begin.wrapping_add(segment.p_memsz as usize))
        };
        let holds = |address: usize| loaded().map(place).any(|(begin, end)| (begin..end).contains(&address));
        let is_own = holds(self.own);
        let is_ours = is_own || self.hook.is_some_and(holds);
        self.takes_other |= is_ours;
        let is_head =
            |segment: &&Segment| segment.p_offset == 0 && segment.p_flags & (libc::PF_W | libc::PF_X) == 0;
        if is_ours
            && let Some((begin, end)) = loaded().find(is_head).map(place)
            && let Some(free) = self.behind_heads.get_mut(self.headed)
        {
            let needed = if is_own { HEAD_BYTES } else { HEAD_BYTES_OF_HOOK };
            *free = (begin.saturating_add(needed), end);
            self.headed += 1;
        }
        if self.unwound.is_some_and(holds) {
            // The index; the tables come after it.
            let index = segments.iter().find(|segment| segment.p_type == libc::PT_GNU_EH_FRAME).map(place);
            let tables = index.and_then(|(index, _)| {
                let within = |segment: &&Segment| {
                    segment.p_flags & (libc::PF_W | libc::PF_X) == 0
                        && (place(segment).0..place(segment).1).contains(&index)
                };
                loaded().find(within).map(|segment| (index, place(segment).1))
            });
            tables.into_iter().for_each(|range| self.add(range));
        }
        if !(is_own || self.takes_other && holds(self.other)) {
            return;
        }
        loaded()
            .filter(|segment| segment.p_flags & libc::PF_W == 0)
            .map(place)
            .for_each(|range| self.add(range));
    }

    fn add(&mut self, range: (usize, usize)) {
        if let Some(free) = self.ranges.get_mut(self.found) {
            *free = range;
            self.found += 1;
        }
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> c_int {
    // SAFETY: the loader's record, and the object above, both valid during the visit.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk>()) };
    if !info.dlpi_phdr.is_null() {
        // SAFETY: the loader says how many there are.
        let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        walk.library(info.dlpi_addr as usize, segments);
    }
    0
}
