//! Blocks of malloc that have a mapping of their own. Nothing lists them: they are known by their heads.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::chunks::{self, Mapped};
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owner;
use memintro_analysis::account::space::{Area, Space};
use memintro_analysis::account::strands::Memory;

use super::answer::AnswerWriter;
use super::frozen::{Frozen, Region, prefetch};
use super::heap_walk::{Candidates, Readable};
use super::objects::Form;
use crate::copy::own_memory::slice;

/// Pages that are looked at although they may not be there: those of 4 GiB.
const MOST_PROBED: usize = 1 << 20;

/// Facts from before the search.
pub(super) struct Wanted<'a> {
    /// Where no such block is.
    pub(super) heaps: &'a [(usize, usize)],
    /// One of Ruby's objects, where the pages of its heap are not claimed.
    pub(super) object: Option<usize>,
    /// How many blocks there are, and their bytes, as the C library has counted them.
    pub(super) counted: Option<(u64, u64)>,
}

/// More blocks than glibc maps.
const MOST: usize = 1 << 20;

/// Chunks with a mapping of their own, which begins at a page. `None` if there is no memory for their list.
pub(super) fn count(
    frozen: &mut Frozen<'_>,
    wanted: &Wanted<'_>,
    candidates: &mut Candidates<'_>,
    answer: &mut AnswerWriter<'_>,
) -> Option<()> {
    let form = wanted.object.and_then(|object| Form::of_object(&frozen.space, object));
    let mut found = Found { list: slice(MOST)?, used: 0, blocks: 0, bytes: 0, counted: wanted.counted };
    let mut resident = 0;
    let areas = frozen.space.areas();
    // How far each area has been searched.
    let ends = slice::<usize>(areas.len())?;
    // Most pages are those of Ruby's heap, among which few blocks are: what comes before them is searched first.
    for stops in [true, false] {
        let mut probed = 0;
        for (index, area) in areas.iter().enumerate() {
            if found.is_all() {
                break;
            }
            let may_have_chunks = frozen.regions.get(index).is_some_and(Region::may_have_chunks);
            // Where pages were spread evenly, a chunk's first one need not be among them, though it is there.
            let is_probed = frozen.is_spread && may_have_chunks && probed < MOST_PROBED;
            probed += if is_probed { (area.end - area.start) / PAGE } else { 0 };
            let heaps = if is_probed { Some(wanted.heaps) } else { None };
            let search = Search { space: &frozen.space, area: *area, heaps, form: form.clone(), stops };
            let Some(end) = ends.get_mut(index) else { break };
            let from = area.start.max(*end);
            found.used = 0;
            *end = search.run(from, &mut found);
            for (at, Mapped { chunk, size }) in found.list.iter().take(found.used) {
                candidates.own(*chunk, Owner::Native);
                resident += frozen.space.claim(*at, *at + *size);
            }
        }
    }
    answer.add("mmapped", &[found.blocks, found.bytes, resident].map(Word::Number));
    if let Some((blocks, bytes)) = wanted.counted {
        answer.add("counted", &[blocks, bytes].map(Word::Number));
    }
    Some(())
}

/// Blocks, with their bytes.
struct Found {
    /// Those of one area, with the beginnings of their mappings.
    list: &'static mut [(usize, Mapped)],
    used: usize,
    blocks: u64,
    bytes: u64,
    counted: Option<(u64, u64)>,
}

impl Found {
    /// Whether these are all that the C library knows of: each further page would be looked at in vain.
    fn is_all(&self) -> bool {
        self.counted == Some((self.blocks, self.bytes))
    }

    fn add(&mut self, block: (usize, Mapped)) {
        if let Some(place) = self.list.get_mut(self.used) {
            *place = block;
            self.used += 1;
            self.blocks += 1;
            self.bytes += block.1.size as u64;
        }
    }
}

/// A search of one area.
struct Search<'a, 'b> {
    space: &'a Space<'b>,
    area: Area,
    /// Where every page is looked at: ranges in which no block is.
    heaps: Option<&'a [(usize, usize)]>,
    form: Option<Form>,
    /// Whether it ends where Ruby's heap begins.
    stops: bool,
}

impl Search<'_, '_> {
    /// Looks at the pages from there on. Returns the end of the area, or where it stopped.
    fn run(&self, mut from: usize, found: &mut Found) -> usize {
        let memory = Readable(self.area);
        let to = self.area.end;
        while from < to && !found.is_all() {
            let next =
                if self.heaps.is_some() { Some(from) } else { self.space.next_resident(&self.area, from) };
            let Some(at) = next.filter(|at| *at < to) else { break };
            if let Some(end) =
                self.form.as_ref().and_then(|form| form.end_of_page(self.space, &self.area, at))
            {
                if self.stops {
                    return at;
                }
                from = end;
                continue;
            }
            // Most pages are followed by others.
            prefetch(at + 16 * PAGE);
            let is_in_heap = |(start, end): &(usize, usize)| (*start..*end).contains(&at);
            let one = chunks::mapped(at, self.area.end - at, |place| memory.word(place))
                .filter(|_| !self.heaps.is_some_and(|heaps| heaps.iter().any(is_in_heap)));
            if let Some(one) = one {
                found.add((at, one));
            }
            from = at + one.map_or(PAGE, |one| one.size);
        }
        from.max(to)
    }
}
