//! The copy's work. It allocates nothing, and ends the process.

use std::sync::atomic::AtomicU64;

use memintro_abi::HookApi;
use memintro_analysis::account::PAGE;
use memintro_analysis::account::maps::{self, Mapping};
use memintro_analysis::account::owners::Owners;
use memintro_analysis::account::space::{Area, Space};

use crate::copy::own_memory::{self, read_all, slice, slice_apart};
use crate::copy::{self, Outcome};

use super::answer::{AnswerWriter, open, room_for_maps};
use super::frozen::{self, Frozen, LastFile, Region};
use super::objects::Details;
use super::resident::{Ranges, Source};
use super::shared::SharedPages;
use super::{HeapPage, Wanted, glibc, objects, sites, table};

/// For call sites of blocks.
const SITES_SECONDS: u32 = 2;

/// Less than this is not looked for in each row: a process that was never forked shares some pages of the kernel's.
const LEAST_SHARED: u64 = 64 << 10;

pub(crate) struct Plan<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) pages: &'a [HeapPage],
    /// The hook's own mappings.
    pub(crate) own: &'a [(usize, usize)],
    /// The folder of memintro's own code.
    pub(crate) own_code: &'a [u8],
    /// The hook, while it tracks.
    pub(crate) hook: Option<&'static HookApi>,
    /// One of Ruby's objects.
    pub(crate) object: Option<usize>,
    pub(crate) text: *mut u8,
    pub(crate) room: usize,
    pub(crate) length: &'a AtomicU64,
    pub(crate) outcome: &'a Outcome,
    pub(crate) table: table::Place,
    /// Pages that other processes had as well before the copy was made, where that is asked.
    pub(crate) shared_pages: Option<&'a SharedPages>,
}

pub(crate) fn run(plan: &Plan<'_>) -> ! {
    // SAFETY: the shared memory, which only this copy writes.
    let text = unsafe { std::slice::from_raw_parts_mut(plan.text, plan.room) };
    let mut answer = AnswerWriter::new(text, plan.length);
    let done = account(plan, &mut answer).is_some();
    plan.outcome.tell(done);
    copy::end(done)
}

fn account(plan: &Plan<'_>, answer: &mut AnswerWriter<'_>) -> Option<()> {
    let source = Source::new(plan.wanted.pagemap);
    let mut ranges = source.ranges();
    let mut table = plan.table.table();
    let mut listed = ranges.as_mut().and_then(|ranges| list(&source, Some((ranges, &mut table))));
    if listed.is_none() {
        ranges = None;
        listed = list(&source, None);
    } else {
        table.finish();
    }
    answer.figure("ranges", u64::from(ranges.is_some()));
    let mut listed = listed?;
    for (key, bytes) in ["other", "code", "rss"].into_iter().zip(listed.sums) {
        answer.figure(key, bytes);
    }
    // Without memory for this, whose a block is must be told by sizes.
    let mut map = if plan.pages.is_empty() { None } else { slice::<u8>(Owners::bytes(listed.pages)) };
    let bits = slice(Space::words(listed.pages))?;
    let own = listed.own;
    let mut frozen = listed.freeze((&source, ranges.as_ref()), bits, map.as_deref_mut(), answer)?;
    count(plan, &mut frozen, own, answer)?;
    objects::sizes(plan.pages, &mut frozen, (Details::All, plan.own_code), answer);
    answer.figure("stage", 2);
    if let (Some(api), Some(owners)) = (plan.hook, &frozen.owners) {
        // Another thread may have been recording at the instant of the copy, and never ends here.
        copy::set_timer(SITES_SECONDS);
        sites::list(api, owners, answer)?;
        answer.figure("stage", 4);
    }
    answer.figure("lost", answer.lost());
    let Some(shared) = plan.shared_pages else { return Some(()) };
    if shared.bytes() < LEAST_SHARED {
        answer.figure("again", 1);
        for (key, figure) in [("other", shared.bytes()), ("rss", shared.bytes()), ("stage", 1), ("stage", 2)]
        {
            answer.figure(key, figure);
        }
        return Some(());
    }
    copy::set_timer(plan.wanted.seconds.max(1));
    if map.as_mut().is_some_and(|map| !own_memory::clear(map)) {
        return Some(());
    }
    count_shared(plan, (&source, ranges.as_ref()), &mut listed, (shared, map), answer)
}

/// Counts all again, and of each figure only pages that are shared.
fn count_shared(
    plan: &Plan<'_>,
    source: (&Source, Option<&Ranges>),
    listed: &mut Listed,
    (shared, map): (&SharedPages, Option<&mut [u8]>),
    answer: &mut AnswerWriter<'_>,
) -> Option<()> {
    answer.figure("again", 1);
    let (bits, counted) = (slice(Space::words(listed.pages))?, slice(Space::words(listed.pages))?);
    let mut other = 0;
    {
        let mut space = Space::new(listed.areas, &mut *counted);
        shared.each(|page| match space.area(page) {
            Some(_) => space.set_range(page, page + PAGE),
            None => other += PAGE as u64,
        });
    }
    let own = listed.own;
    let mut frozen = listed.freeze(source, bits, map, answer)?;
    frozen.space.count_only(counted);
    let all: u64 = frozen.space.areas().iter().map(|area| frozen.space.resident(area.start, area.end)).sum();
    answer.figure("other", other);
    answer.figure("rss", all + other);
    objects::aged(plan.pages, &frozen, answer);
    count(plan, &mut frozen, own, answer)?;
    objects::sizes(plan.pages, &mut frozen, (Details::Sizes, plan.own_code), answer);
    answer.figure("stage", 2);
    Some(())
}

/// Counts what each page is for.
fn count(plan: &Plan<'_>, frozen: &mut Frozen<'_>, own: &[u8], answer: &mut AnswerWriter<'_>) -> Option<()> {
    frozen::own_ranges(plan.own, frozen, answer);
    objects::pages(plan.pages, frozen, answer);
    frozen.stacks(answer);
    if frozen.owners.is_some() {
        let words = frozen
            .space
            .areas()
            .last()
            .map_or(0, |area| Space::words(area.first_bit + (area.end - area.start) / PAGE));
        frozen.malloc = slice(words).map(|bits| frozen.space.copy(bits));
    }
    let object = plan.object.filter(|_| plan.pages.is_empty());
    glibc::walk(frozen, own, object, answer)?;
    frozen.rest(answer);
    answer.figure("stage", 1);
    Some(())
}

/// The mappings of the copy.
struct Listed {
    own: &'static [u8],
    /// Those that are no files'.
    areas: &'static [Area],
    regions: &'static mut [Region],
    pages: usize,
    /// Resident bytes: what is counted as a whole, code, all.
    sums: [u64; 3],
}

impl Listed {
    /// Resident bytes that are not claimed yet.
    fn freeze<'a>(
        &'a mut self,
        (source, ranges): (&Source, Option<&Ranges>),
        bits: &'a mut [u64],
        map: Option<&'a mut [u8]>,
        answer: &mut AnswerWriter<'_>,
    ) -> Option<Frozen<'a>> {
        let mut space = Space::new(self.areas, bits);
        let is_spread = source.fill(&mut space, self.regions, ranges, answer)?;
        let control_blocks = slice(self.areas.len())?;
        let owners = map.map(|map| Owners::new(self.areas, map));
        Some(Frozen { space, regions: self.regions, is_spread, control_blocks, malloc: None, owners })
    }
}

/// Reads the list of mappings, and what is resident of each. `None` if that is not told.
fn list(source: &Source, mut ranges: Option<(&mut Ranges, &mut table::Table)>) -> Option<Listed> {
    let path = if ranges.is_some() { c"/proc/self/maps" } else { c"/proc/self/smaps" };
    let own = read_all(open(path), room_for_maps(slice_apart)?)?;
    let mut count = 0;
    maps::each(own, |_| count += 1);
    let mut sorted = Sorted {
        regions: slice::<Region>(count)?,
        areas: slice::<Area>(count)?,
        most_pages: source.most_pages(),
        used: 0,
        bit: 0,
        last_file: LastFile::default(),
        guard_end: 0,
        sums: [0; 3],
    };
    let mut is_told = true;
    maps::each(own, |mut mapping| {
        if let Some((ranges, table)) = &mut ranges
            && mapping.is_anonymous()
            && is_told
        {
            is_told = !mapping.may_be_asked() || ranges.measure(&mut mapping);
            table.add(&mapping);
        }
        sorted.add(mapping);
    });
    let Sorted { regions, areas, used, bit, sums, .. } = sorted;
    let regions = regions.get_mut(..used)?;
    is_told.then_some(Listed { own, areas: areas.get(..used)?, regions, pages: bit, sums })
}

/// Lists the mappings that are no files'.
struct Sorted {
    regions: &'static mut [Region],
    areas: &'static mut [Area],
    most_pages: usize,
    /// How many these are, and their pages.
    used: usize,
    bit: usize,
    last_file: LastFile,
    guard_end: usize,
    sums: [u64; 3],
}

impl Sorted {
    fn add(&mut self, mapping: Mapping<'static>) {
        let pages = (mapping.end - mapping.start) / PAGE;
        if !mapping.is_anonymous() {
            self.last_file = LastFile::new(&mapping);
            return;
        }
        if !mapping.readable && !mapping.writable {
            self.guard_end = mapping.end;
        }
        if mapping.is_kept_back {
            return;
        }
        let [other, code, rss] = &mut self.sums;
        let named = mapping.name.starts_with(b"[") && mapping.name != b"[heap]" && mapping.name != b"[stack]";
        let is_whole = !mapping.readable || named || pages > self.most_pages;
        if let Some(last) = self.used.checked_sub(1)
            && let (Some(area), Some(region)) = (self.areas.get_mut(last), self.regions.get_mut(last))
            && !is_whole
            && region.goes_on(area, &mapping)
        {
            *rss += mapping.rss;
            region.rss += mapping.rss;
            area.end = mapping.end;
            self.bit += pages;
            return;
        }
        if mapping.rss == 0 {
            return;
        }
        *rss += mapping.rss;
        if mapping.executable && mapping.name != b"[vdso]" {
            *code += mapping.rss;
        }
        if is_whole {
            *other += mapping.rss;
            return;
        }
        if let (Some(area), Some(region)) = (self.areas.get_mut(self.used), self.regions.get_mut(self.used)) {
            *area = Area { start: mapping.start, end: mapping.end, first_bit: self.bit };
            *region = Region {
                rss: mapping.rss,
                is_plain: mapping.writable && !mapping.executable,
                is_stack: mapping.name == b"[stack]",
                is_brk: mapping.name == b"[heap]",
                is_guarded: self.guard_end == mapping.start,
                file: self.last_file.of_data(mapping.start),
            };
            self.used += 1;
            self.bit += pages;
        }
    }
}
