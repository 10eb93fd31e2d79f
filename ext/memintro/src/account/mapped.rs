//! Blocks of malloc that have a mapping of their own. Nothing lists them: they are known by their heads.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::chunks;
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owner;
use memintro_analysis::account::strands::Memory;

use super::answer::Answer;
use super::frozen::{Frozen, Region, prefetch};
use super::heap_walk::{Candidates, Readable};
use super::objects::Form;

/// Pages that are looked at although they may not be there: those of 4 GiB.
const MOST_PROBED: usize = 1 << 20;

/// What is known before the search.
pub(super) struct Wanted<'a> {
    /// Where no such block is.
    pub(super) heaps: &'a [(usize, usize)],
    /// One of Ruby's objects, where the pages of its heap are not claimed.
    pub(super) object: Option<usize>,
    /// How many blocks there are, and their bytes, as the C library has counted them.
    pub(super) counted: Option<(u64, u64)>,
}

/// Chunks with a mapping of their own: they begin at a page.
pub(super) fn count(
    frozen: &mut Frozen<'_>,
    wanted: &Wanted<'_>,
    candidates: &mut Candidates<'_>,
    answer: &mut Answer<'_>,
) {
    let form = wanted.object.and_then(|object| Form::of_object(frozen, object));
    let (mut blocks, mut bytes, mut resident, mut probed) = (0, 0, 0, 0);
    for (index, area) in frozen.space.areas().iter().enumerate() {
        let may_have_chunks = frozen.regions.get(index).is_some_and(Region::may_have_chunks);
        let memory = Readable(*area);
        let mut from = area.start;
        // All that the C library knows of are found: each further page would be looked at in vain.
        while wanted.counted != Some((blocks, bytes)) {
            // Where pages were spread evenly, a chunk's first one need not be among them, though it is there.
            let is_probed = frozen.is_spread && may_have_chunks && probed < MOST_PROBED && from < area.end;
            let next = if is_probed { Some(from) } else { frozen.space.next_resident(area, from) };
            let Some(at) = next else { break };
            probed += usize::from(is_probed);
            if let Some(end) = form.as_ref().and_then(|form| form.end_of_page(frozen, area, at)) {
                from = end;
                continue;
            }
            // Most pages are followed by others.
            prefetch(at + 16 * PAGE);
            let size = chunks::mapped(at, area.end - at, |place| memory.word(place))
                .filter(|_| !is_probed || !wanted.heaps.iter().any(|(from, to)| (*from..*to).contains(&at)));
            if let Some(size) = size {
                candidates.own(at, Owner::Native);
                blocks += 1;
                bytes += size as u64;
                resident += frozen.space.claim(at, at + size);
            }
            from = at + size.unwrap_or(PAGE);
        }
    }
    answer.add("mmapped", &[blocks, bytes, resident].map(Word::Number));
    if let Some((blocks, bytes)) = wanted.counted {
        answer.add("counted", &[blocks, bytes].map(Word::Number));
    }
}
