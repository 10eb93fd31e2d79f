//! What the copy does: allocates nothing, and ends.

use std::sync::atomic::AtomicU64;

use memintro_abi::HookApi;
use memintro_analysis::account::owners::Owners;
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::{PAGE, maps};

use crate::copy;
use crate::copy::own_memory::{read_all, slice};

use super::answer::{Answer, open, room_for_maps};
use super::frozen::{self, Frozen, LastFile, Region};
use super::resident::Source;
use super::threads::Threads;
use super::{HeapPage, Wanted, glibc, objects, sites};

/// For call sites of blocks.
const SITES_SECONDS: i64 = 2;

pub(crate) struct Plan<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) pages: &'a [HeapPage],
    /// What the hook has mapped for itself.
    pub(crate) own: &'a [(usize, usize)],
    /// The hook, while it tracks.
    pub(crate) hook: Option<&'static HookApi>,
    /// Those of the process, where its chunks may be counted by lists.
    pub(crate) threads: Option<Threads>,
    /// The process that was copied.
    pub(crate) parent: libc::pid_t,
    pub(crate) text: *mut u8,
    pub(crate) room: usize,
    pub(crate) length: &'a AtomicU64,
}

pub(crate) fn run(plan: &Plan<'_>) -> ! {
    copy::become_harmless(plan.parent, plan.wanted.seconds, []);
    // SAFETY: the shared memory, which only this copy writes.
    let text = unsafe { std::slice::from_raw_parts_mut(plan.text, plan.room) };
    let mut answer = Answer::new(text, plan.length);
    let done = account(plan, &mut answer).is_some();
    copy::end(done)
}

fn account(plan: &Plan<'_>, answer: &mut Answer<'_>) -> Option<()> {
    let own = read_all(open(c"/proc/self/smaps"), room_for_maps()?)?;
    let source = Source::new(plan.wanted.pagemap);
    let mut count = 0;
    maps::each(own, |_| count += 1);
    let regions = slice::<Region>(count)?;
    let areas = slice::<Area>(count)?;
    let (used, pages) = sort_mappings(own, source.most_pages(), regions, areas, answer);
    let mut space = Space::new(areas.get(..used)?, slice(Space::words(pages))?);
    let regions = regions.get_mut(..used)?;
    let is_spread = source.fill(&mut space, regions, answer)?;
    let mut frozen =
        Frozen { space, regions, is_spread, control_blocks: slice(count)?, malloc: None, owners: None };
    frozen::own_ranges(plan.own, &mut frozen, answer);
    objects::pages(plan.pages, &mut frozen, answer);
    frozen.stacks(answer);
    if !plan.pages.is_empty() {
        // Without memory for these, whose a block is must be told by sizes.
        frozen.malloc = slice(Space::words(pages)).map(|bits| frozen.space.copy(bits));
        frozen.owners = slice(Owners::bytes(pages)).map(|map| Owners::new(frozen.space.areas(), map));
    }
    glibc::walk(&mut frozen, own, (plan.wanted.ways, plan.threads), answer)?;
    frozen.rest(answer);
    answer.figure("stage", 1);
    // Asks Ruby for sizes, and may fail.
    objects::sizes(plan.pages, &mut frozen, answer);
    answer.figure("stage", 2);
    if let (Some(api), Some(owners)) = (plan.hook, &frozen.owners) {
        // Another thread may have been recording at the instant of the copy, and never ends here.
        set_timer(SITES_SECONDS);
        sites::list(api, owners, answer)?;
        answer.figure("stage", 4);
    }
    answer.figure("lost", answer.lost());
    Some(())
}

fn set_timer(seconds: i64) {
    let timer = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: seconds, tv_usec: 0 },
    };
    // SAFETY: a valid record.
    unsafe { libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0) };
}

/// Lists the mappings that are no files'. Returns how many these are, and their pages.
fn sort_mappings(
    own: &'static [u8],
    most_pages: usize,
    regions: &mut [Region],
    areas: &mut [Area],
    answer: &mut Answer<'_>,
) -> (usize, usize) {
    let (mut rss, mut other) = (0, 0);
    let (mut used, mut bit, mut code) = (0_usize, 0, 0);
    let (mut last_file, mut guard_end) = (LastFile::default(), 0);
    maps::each(own, |mapping| {
        let pages = (mapping.end - mapping.start) / PAGE;
        if !mapping.is_anonymous() {
            last_file = LastFile::new(&mapping);
            return;
        }
        if !mapping.readable && !mapping.writable {
            guard_end = mapping.end;
        }
        if mapping.is_kept_back {
            return;
        }
        let named = mapping.name.starts_with(b"[") && mapping.name != b"[heap]" && mapping.name != b"[stack]";
        let is_whole = !mapping.readable || named || pages > most_pages;
        if let Some(last) = used.checked_sub(1)
            && let (Some(area), Some(region)) = (areas.get_mut(last), regions.get_mut(last))
            && !is_whole
            && region.goes_on(area, &mapping)
        {
            rss += mapping.rss;
            region.rss += mapping.rss;
            area.end = mapping.end;
            bit += pages;
            return;
        }
        if mapping.rss == 0 {
            return;
        }
        rss += mapping.rss;
        if mapping.executable && mapping.name != b"[vdso]" {
            code += mapping.rss;
        }
        if is_whole {
            other += mapping.rss;
            return;
        }
        if let (Some(area), Some(region)) = (areas.get_mut(used), regions.get_mut(used)) {
            *area = Area { start: mapping.start, end: mapping.end, first_bit: bit };
            *region = Region {
                rss: mapping.rss,
                is_plain: mapping.writable && !mapping.executable,
                is_stack: mapping.name == b"[stack]",
                is_brk: mapping.name == b"[heap]",
                is_guarded: guard_end == mapping.start,
                file: last_file.of_data(mapping.start),
            };
            used += 1;
            bit += pages;
        }
    });
    answer.figure("other", other);
    answer.figure("code", code);
    answer.figure("rss", rss);
    (used, bit)
}
