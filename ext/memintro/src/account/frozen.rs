//! The anonymous memory of the copy, and who has claimed which of its pages.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::arenas::HEAP;
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::maps::Mapping;
use memintro_analysis::account::owners::Owners;
use memintro_analysis::account::space::{Area, Space};

use super::answer::AnswerWriter;

/// The kernel's data of one area.
#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    pub(crate) rss: u64,
    /// Written, and no code.
    pub(crate) is_plain: bool,
    pub(crate) is_stack: bool,
    pub(crate) is_brk: bool,
    /// The file whose data ends where this begins: what it has beyond the file is at the beginning.
    pub(crate) file: &'static [u8],
    /// Directly after memory that cannot be touched, as stacks are.
    pub(crate) is_guarded: bool,
}

impl Region {
    /// Whether malloc may have mapped this, or a part of it, for one block.
    pub(crate) fn may_have_chunks(&self) -> bool {
        self.is_plain && !self.is_stack && !self.is_brk
    }

    /// Whether this may be the stack of a fiber: there is a guard before it.
    fn may_be_of_fiber(&self, area: &Area) -> bool {
        self.is_guarded && area.end - area.start < 4 << 20 && !area.start.is_multiple_of(HEAP)
    }

    /// Whether this mapping is more of the same: in a child of fork, what a heap grows by is a mapping of its own.
    /// A stack ends where its mapping does.
    pub(crate) fn goes_on(&self, area: &Area, next: &Mapping<'_>) -> bool {
        let is_plain = next.private && next.writable && next.readable && !next.executable;
        let is_brk = next.name == b"[heap]";
        let is_stack = self.is_stack || (self.is_guarded && !area.start.is_multiple_of(HEAP));
        area.end == next.start
            && self.is_plain
            && is_plain
            && !is_stack
            && self.file.is_empty()
            && self.is_brk == is_brk
            && (is_brk || next.name.is_empty())
            && !next.is_kept_back
            // The pages of a large mapping that is not resident would only cost time.
            && (next.rss + next.swap > 0 || next.end - next.start <= HEAP)
    }
}

/// The mapping of a file that was last, which may be data of a module.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastFile {
    name: &'static [u8],
    end: usize,
}

impl LastFile {
    pub(crate) fn new(mapping: &Mapping<'static>) -> Self {
        let may_be_data = mapping.writable && mapping.private;
        Self { name: mapping.name, end: if may_be_data { mapping.end } else { 0 } }
    }

    /// Its name, if what begins here is what the module's data has beyond the file. A heap of malloc is not.
    pub(crate) fn of_data(&self, start: usize) -> &'static [u8] {
        if start == self.end && !start.is_multiple_of(HEAP) { self.name } else { b"" }
    }
}

pub(crate) struct Frozen<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) regions: &'a mut [Region],
    /// The resident pages of some mapping are unknown: they were spread evenly.
    pub(crate) is_spread: bool,
    /// For each area, the control block of the thread whose stack it is, or 0.
    pub(crate) control_blocks: &'a mut [usize],
    /// Pages that were left for malloc, even if they were claimed since.
    pub(crate) malloc: Option<Space<'a>>,
    /// Whose each chunk of malloc is.
    pub(crate) owners: Option<Owners<'a>>,
}

impl Frozen<'_> {
    /// Eight bytes of anonymous memory; `None` elsewhere.
    #[inline]
    pub(crate) fn word(&self, address: usize) -> Option<u64> {
        let area = self.space.area(address)?;
        // SAFETY: within a readable mapping of this process, in which nothing else runs.
        (address.is_multiple_of(8) && area.holds(address, address.checked_add(8)?))
            .then(|| unsafe { read(address) })
    }

    /// Stacks: the main thread's, those of threads (which have their control block at the end), and others with a
    /// guard before them, which are those of fibers.
    pub(crate) fn stacks(&mut self, answer: &mut AnswerWriter<'_>) {
        let (mut main, mut threads, mut fibers) = ((0, 0), (0, 0), (0, 0));
        for index in 0..self.regions.len() {
            let (Some(region), Some(area)) =
                (self.regions.get(index).copied(), self.space.areas().get(index))
            else {
                continue;
            };
            let block = if region.is_guarded { self.control_block(area.end) } else { None };
            if let (Some(place), Some(block)) = (self.control_blocks.get_mut(index), block) {
                *place = block;
            }
            let sum = if region.is_stack {
                &mut main
            } else if block.is_some() {
                &mut threads
            } else if region.may_be_of_fiber(area) {
                &mut fibers
            } else {
                continue;
            };
            sum.0 += 1;
            sum.1 += self.space.claim(area.start, area.end);
        }
        for (name, (count, bytes)) in [("main", main), ("threads", threads), ("fibers", fibers)] {
            answer.add("stack", &[Word::Number(count), Word::Number(bytes), Word::Text(name.as_bytes())]);
        }
    }

    /// Whether the stack of a fiber begins here, after its guard. Known once stacks have been counted.
    pub(crate) fn is_stack_of_fiber(&self, address: usize) -> bool {
        if !address.is_multiple_of(PAGE) {
            return false;
        }
        let index = self.space.areas().partition_point(|area| area.end <= address);
        let area = self.space.areas().get(index).filter(|area| area.start == address);
        let is_of_thread = self.control_blocks.get(index).is_some_and(|block| *block != 0);
        area.zip(self.regions.get(index))
            .is_some_and(|(area, region)| !region.is_stack && !is_of_thread && region.may_be_of_fiber(area))
    }

    /// The control block of the thread whose stack ends here.
    fn control_block(&self, end: usize) -> Option<usize> {
        const FARTHEST: usize = 4 * PAGE;
        (1..=FARTHEST / 64)
            .map(|step| (end & !63) - step * 64)
            .find(|at| self.space.is_resident(*at) && self.is_control_block(*at))
    }

    /// The control block of a thread begins with its own address, twice.
    pub(crate) fn is_control_block(&self, at: usize) -> bool {
        let own = Some(at as u64);
        self.word(at) == own && self.word(at + 16) == own
    }

    /// The unclaimed rest.
    pub(crate) fn rest(&mut self, answer: &mut AnswerWriter<'_>) {
        const LARGEST_DATA: usize = 1 << 20;
        let mut rest = 0;
        for (area, region) in self.space.areas().iter().zip(self.regions.iter()) {
            let bytes = self.space.claim(area.start, area.end);
            if region.file.is_empty() || area.end - area.start > LARGEST_DATA {
                rest += bytes;
            } else if bytes > 0 {
                answer.add("bss", &[Word::Number(bytes), Word::Text(region.file)]);
            }
        }
        answer.figure("anonymous", rest);
    }
}

/// What the hook has mapped for its tables.
pub(crate) fn own_ranges(list: &[(usize, usize)], frozen: &mut Frozen<'_>, answer: &mut AnswerWriter<'_>) {
    let mut resident = 0;
    for (start, end) in list {
        let mut from = *start;
        // A range may lie in several mappings.
        while from < *end
            && let Some(area) = frozen.space.area_from(from).filter(|area| area.start < *end)
        {
            let first = from.max(area.start);
            from = area.end;
            resident += frozen.space.claim(first, area.end.min(*end));
        }
    }
    answer.figure("own", resident);
}

/// # Safety
/// The address is readable and a multiple of eight.
#[inline]
pub(crate) unsafe fn read(address: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address).read_volatile() }
}

/// Has the processor fetch this word; an address of nothing does no harm.
#[inline]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::with_exposed_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
