//! Blocks of malloc that have a mapping of their own. Nothing lists them: they are known by their heads.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::chunks;
use memintro_analysis::account::lines::Word;
use memintro_analysis::account::owners::Owner;

use super::answer::Answer;
use super::frozen::{Frozen, Region, prefetch};
use super::glibc::Candidates;

/// Pages that are looked at although they may not be there: those of 4 GiB.
const MOST_PROBED: usize = 1 << 20;

/// Chunks with a mapping of their own: they begin at a page. `heaps` have none.
pub(super) fn count(
    frozen: &mut Frozen<'_>,
    heaps: &[(usize, usize)],
    candidates: &mut Candidates<'_>,
    answer: &mut Answer<'_>,
) {
    let (mut blocks, mut bytes, mut resident, mut probed) = (0, 0, 0, 0);
    for (index, area) in frozen.space.areas().iter().enumerate() {
        let may_have_chunks = frozen.regions.get(index).is_some_and(Region::may_have_chunks);
        let mut from = area.start;
        loop {
            // Where pages were spread evenly, a chunk's first one need not be among them, though it is there.
            let is_probed = frozen.is_spread && may_have_chunks && probed < MOST_PROBED && from < area.end;
            let next = if is_probed { Some(from) } else { frozen.space.next_resident(area, from) };
            let Some(at) = next else { break };
            probed += usize::from(is_probed);
            // Most pages are followed by others.
            prefetch(at + 16 * PAGE);
            let size = chunks::mapped(at, area.end - at, |place| frozen.word(place))
                .filter(|_| !is_probed || !heaps.iter().any(|(from, to)| (*from..*to).contains(&at)));
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
}
