//! Counts the samples of each call site by their native callers.
//!
//! Memory is bounded: for each site, some chains with the most bytes, and one sum for all others of a
//! library; and some thousand blocks that are checked for being live, because a line may allocate a thousand
//! blocks for each one that it leaks.
//!
//! A search for leaks in a core file reads this memory like all memory of the process. So unused room is
//! wiped, because it may hold old addresses.

use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;

use memintro_abi::CallerSample;

use crate::chain::Chain;
use crate::modules::Place;

/// Sites with a tally of their own.
const MOST_SITES: usize = 16_384;
/// Most chains of each site that are counted separately.
const MOST_CHAINS: usize = 24;
/// Most of these that are shown separately; the others are summed by library.
const MOST_SHOWN: usize = 8;
/// Most libraries of each site that have a sum of their other chains.
const MOST_LIBRARIES: usize = 8;
/// Blocks of all sites that are remembered.
const MOST_BLOCKS: usize = 4_096;

/// The number of chains that are not counted for a site.
const OTHER: u8 = u8::MAX;
const RUBY: u8 = u8::MAX - 1;
const UNKNOWN: u8 = u8::MAX - 2;
/// Live blocks of a site that are needed to say whether Ruby itself allocated them.
const ENOUGH: usize = 4;
/// The number of the first library's sum.
const LIBRARIES: u8 = 128;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    samples: u32,
    weight: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A chain of its own.
#[derive(Debug)]
struct Way {
    places: Vec<Place>,
    count: Count,
    /// Its bytes, plus those of the chain that it replaced. So a frequent chain stays, in any order of
    /// arrival (the algorithm Space-Saving of Metwally and others).
    credit: u64,
}

#[derive(Debug, Default)]
struct Site {
    chains: Vec<Way>,
    /// By the number of the library's module.
    libraries: Vec<(u32, Count)>,
    other: Count,
    ruby: Count,
    unknown: Count,
}

impl Site {
    /// The number of the chain, and the number of a chain that it replaced, if any.
    fn add(&mut self, chain: Chain, sample: Count) -> (u8, Option<u8>) {
        let (count, number) = match chain {
            Chain::Ruby => (&mut self.ruby, RUBY),
            Chain::Unknown => (&mut self.unknown, UNKNOWN),
            Chain::Native(places) => return self.add_native(places, sample),
        };
        count.add(sample);
        (number, None)
    }

    fn add_native(&mut self, mut places: Vec<Place>, sample: Count) -> (u8, Option<u8>) {
        if let Some(at) = self.chains.iter().position(|known| known.places == places) {
            let way = &mut self.chains[at];
            way.count.add(sample);
            way.credit = way.credit.saturating_add(sample.bytes);
            return (at as u8, None);
        }
        places.shrink_to_fit();
        let at = self.chains.len();
        if at < MOST_CHAINS {
            insert(&mut self.chains, at, Way { places, count: sample, credit: sample.bytes });
            return (at as u8, None);
        }
        let Some((at, least)) = self.chains.iter_mut().enumerate().min_by_key(|(_, way)| way.credit) else {
            return (OTHER, None);
        };
        let credit = least.credit.saturating_add(sample.bytes);
        let before = std::mem::replace(least, Way { places, count: sample, credit });
        (at as u8, Some(self.sum_up(&before)))
    }

    /// Adds a chain that is no longer counted separately to its library.
    fn sum_up(&mut self, way: &Way) -> u8 {
        let Some(module) = way.places.first().map(|place| place.module) else { return OTHER };
        let known = self.libraries.iter().position(|(library, _)| *library == module);
        let at = known.or_else(|| {
            let at = self.libraries.len();
            (at < MOST_LIBRARIES).then(|| insert(&mut self.libraries, at, (module, Count::default())))?;
            Some(at)
        });
        let (count, number) = match at {
            Some(at) => (&mut self.libraries[at].1, LIBRARIES + at as u8),
            None => (&mut self.other, OTHER),
        };
        count.add(way.count);
        number
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its bits are inverted: a search for leaks must not find the block held by this record.
    inverted_address: u64,
    size: u64,
    site: u32,
    serial: u32,
    weight: u32,
    chain: u8,
}

/// The samples of a run.
#[derive(Debug, Default)]
pub struct Tally {
    epoch: u32,
    /// In the order of their numbers.
    sites: Vec<(u32, Site)>,
    blocks: Vec<Block>,
}

/// Native callers of a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteFigures {
    /// Samples of the site.
    pub samples: u32,
    /// Sampled blocks of the site that are live.
    pub live_samples: u32,
    /// Its native callers, the greatest share of what is live first, then the most bytes.
    pub callers: Vec<CallerFigures>,
}

/// One native caller of a site. Shares are from 0 to 1, and estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerFigures {
    /// The innermost frame first; [`Place::whole`]: all others of a library; empty: all others.
    pub places: Vec<Place>,
    /// Samples that came through it.
    pub samples: u32,
    /// Sampled blocks of it that are live.
    pub live_samples: u32,
    /// Its share of the site's allocations.
    pub share: f64,
    /// Its share of the site's live bytes; `None` if no sampled block of the site is live.
    pub live_share: Option<f64>,
}

impl Tally {
    /// Forgets everything if numbers of sites mean something else now.
    pub fn begin(&mut self, epoch: u32) {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &CallerSample, chain: Chain) {
        if sample.epoch != self.epoch {
            return;
        }
        let at = match self.sites.binary_search_by_key(&sample.site, |(number, _)| *number) {
            Ok(at) => at,
            Err(_) if self.sites.len() >= MOST_SITES => return,
            Err(at) => {
                insert(&mut self.sites, at, (sample.site, Site::default()));
                at
            }
        };
        let bytes = u64::from(sample.weight).saturating_mul(sample.size);
        let one = Count { samples: 1, weight: sample.weight.into(), bytes };
        let (chain, given_up) = self.sites[at].1.add(chain, one);
        if let Some(number) = given_up {
            let of_it =
                self.blocks.iter_mut().filter(|block| block.site == sample.site && block.chain == chain);
            of_it.for_each(|block| block.chain = number);
        }
        let block = Block {
            inverted_address: !sample.block,
            size: sample.size,
            site: sample.site,
            serial: sample.serial,
            weight: sample.weight,
            chain,
        };
        let at = self.blocks.len();
        insert(&mut self.blocks, at, block);
    }

    /// Whether [`Tally::keep_live`] should be called now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= MOST_BLOCKS
    }

    /// Forgets blocks that are known to be freed.
    pub fn keep_live(&mut self, is_live: impl Fn(u64, u32) -> bool) {
        self.blocks.retain(|block| is_live(!block.inverted_address, block.serial));
    }

    /// Whether Ruby itself allocated all live sampled blocks of the site, as of the last
    /// [`Tally::keep_live`]; `false` if these are few.
    #[must_use]
    pub fn is_rubys(&self, site: u32) -> bool {
        let of_it = || self.blocks.iter().filter(|block| block.site == site);
        of_it().count() >= ENOUGH && of_it().all(|block| block.chain == RUBY)
    }

    /// The native callers of each site, by its number, without sites that have none. Live figures need an
    /// earlier call of [`Tally::keep_live`].
    #[must_use]
    pub fn figures(&self) -> HashMap<u32, SiteFigures> {
        let mut live: HashMap<u32, Vec<Block>> = HashMap::new();
        for block in &self.blocks {
            live.entry(block.site).or_default().push(*block);
        }
        let none = Vec::new();
        self.sites
            .iter()
            .filter(|(_, site)| !site.chains.is_empty())
            .map(|(number, site)| (*number, figures(site, live.get(number).unwrap_or(&none))))
            .collect()
    }
}

/// Inserts into a list, and wipes its new room if it has grown.
fn insert<T>(list: &mut Vec<T>, at: usize, one: T) {
    let room = list.capacity();
    list.insert(at, one);
    if list.capacity() != room {
        list.spare_capacity_mut().fill_with(MaybeUninit::zeroed);
    }
}

fn figures(site: &Site, live: &[Block]) -> SiteFigures {
    let others = [&site.other, &site.ruby, &site.unknown];
    let counts = || {
        let ways = site.chains.iter().map(|way| &way.count);
        ways.chain(site.libraries.iter().map(|(_, count)| count)).chain(others)
    };
    let bytes = |block: &Block| f64::from(block.weight) * block.size as f64;
    let weight: u64 = counts().map(|count| count.weight).sum();
    let live_bytes: f64 = live.iter().map(bytes).sum();
    let caller = |places: &[Place], parts: &[Part]| {
        let own = || live.iter().filter(|block| parts.iter().any(|(number, _)| block.chain == *number));
        let mut count = Count::default();
        parts.iter().for_each(|(_, part)| count.add(*part));
        let figures = CallerFigures {
            places: places.to_vec(),
            samples: count.samples,
            live_samples: own().count() as u32,
            share: if weight == 0 { 0.0 } else { short(count.weight as f64 / weight as f64) },
            live_share: (live_bytes > 0.0)
                .then(|| short(own().map(bytes).fold(0.0, |sum, one| sum + one) / live_bytes)),
        };
        (figures, count.bytes)
    };
    let numbered = site.chains.iter().enumerate();
    let mut ways: Vec<_> =
        numbered.map(|(at, way)| (caller(&way.places, &[(at as u8, way.count)]), (at as u8, way))).collect();
    ways.sort_by(|(one, _), (other, _)| by_bytes(one, other));
    let rest = ways.split_off(ways.len().min(MOST_SHOWN));
    let mut callers: Vec<_> = ways.into_iter().map(|(caller, _)| caller).collect();
    for (module, parts) in by_library(site, rest.into_iter().map(|(_, way)| way)) {
        // A single one is named as it is.
        let single =
            parts.first().filter(|_| parts.len() == 1).and_then(|(at, _)| site.chains.get(usize::from(*at)));
        callers.push(match single {
            Some(way) => caller(&way.places, &parts),
            None => caller(&[Place::whole(module)], &parts),
        });
    }
    callers.sort_by(by_bytes);
    if site.other.samples > 0 {
        callers.push(caller(&[], &[(OTHER, site.other)]));
    }
    SiteFigures {
        samples: counts().map(|count| count.samples).sum(),
        live_samples: live.len() as u32,
        callers: callers.into_iter().map(|(figures, _)| figures).collect(),
    }
}

/// The number of a chain or a library, and its samples.
type Part = (u8, Count);

/// The greatest share of what is live first, then the most bytes.
fn by_bytes(one: &(CallerFigures, u64), other: &(CallerFigures, u64)) -> std::cmp::Ordering {
    let live = |(figures, _): &(CallerFigures, u64)| figures.live_share.unwrap_or(0.0);
    live(other).total_cmp(&live(one)).then(other.1.cmp(&one.1))
}

/// Chains that are not shown separately, by the number of their library's module.
fn by_library<'a>(site: &Site, ways: impl Iterator<Item = (u8, &'a Way)>) -> BTreeMap<u32, Vec<Part>> {
    let mut libraries: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for (at, (module, count)) in site.libraries.iter().enumerate() {
        libraries.entry(*module).or_default().push((LIBRARIES + at as u8, *count));
    }
    for (number, way) in ways {
        if let Some(place) = way.places.first() {
            libraries.entry(place.module).or_default().push((number, way.count));
        }
    }
    libraries
}

/// A share with six digits, which every reader of JSON reads as the same number again.
fn short(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(block: u64, size: u64) -> CallerSample {
        // SAFETY: a record of numbers.
        let zero: CallerSample = unsafe { std::mem::zeroed() };
        CallerSample { block, size, site: 1, weight: 1, ..zero }
    }

    fn way(module: u32, offset: u64) -> Vec<Place> {
        vec![Place { module, offset }]
    }

    fn tally(samples: impl Iterator<Item = (Vec<Place>, u64)>) -> SiteFigures {
        let mut tally = Tally::default();
        for (at, (places, size)) in samples.enumerate() {
            tally.add(&sample(at as u64, size), Chain::Native(places));
        }
        tally.figures().remove(&1).unwrap()
    }

    #[test]
    fn a_site_is_rubys_if_no_other_caller_has_a_live_block_of_it() {
        let mut tally = Tally::default();
        tally.add(&sample(1, 16), Chain::Native(way(1, 7)));
        (2..ENOUGH as u64 + 1).for_each(|at| {
            tally.add(&sample(at, 16), Chain::Ruby);
        });
        tally.keep_live(|block, _| block != 1);
        assert!(!tally.is_rubys(1), "three are few");
        tally.add(&sample(9, 16), Chain::Ruby);
        assert!(tally.is_rubys(1) && !tally.is_rubys(2));
        tally.add(&sample(10, 16), Chain::Native(way(1, 7)));
        assert!(!tally.is_rubys(1));
    }

    #[test]
    fn the_way_with_most_bytes_is_first_whenever_it_came() {
        // A hundred ways of 16 bytes before it, between its samples, and behind them.
        let small = (0..100).cycle().take(1_000).map(|at| (way(1, at), 16));
        let samples = small.enumerate().flat_map(|(at, small)| {
            let large = (at >= 300 && at % 10 == 0).then(|| (way(2, 7), 16_000));
            [Some(small), large].into_iter().flatten()
        });
        let figures = tally(samples);
        let [first, rest, ..] = &figures.callers[..] else { panic!("{figures:?}") };
        assert_eq!((&first.places, first.samples, first.live_samples), (&way(2, 7), 70, 70));
        assert!(first.live_share.unwrap() > 0.98);
        // All others are of one library.
        assert_eq!(rest.places, [Place::whole(1)]);
        assert_eq!(figures.samples, 1_070);
        assert_eq!(figures.callers.iter().map(|caller| caller.samples).sum::<u32>(), 1_070);
        assert_eq!(figures.callers.iter().map(|caller| caller.live_samples).sum::<u32>(), 1_070);
        assert!((figures.callers.iter().map(|caller| caller.share).sum::<f64>() - 1.0).abs() < 1e-4);
    }

    #[test]
    fn few_ways_are_told_apart_and_many_summed_up_by_library() {
        let figures = tally((0..9).map(|at| (way(at as u32, at), 100 + at)));
        assert_eq!(
            figures.callers.iter().map(|caller| caller.places.clone()).collect::<Vec<_>>(),
            (0..9).rev().map(|at| way(at as u32, at)).collect::<Vec<_>>()
        );
        let figures = tally((0..600).map(|at| (way(at as u32 % 3, at), 100)));
        let sums: Vec<_> = figures.callers.iter().filter(|caller| caller.places[0].is_whole()).collect();
        assert_eq!(sums.len(), 3);
        assert!(sums.iter().all(|sum| sum.samples > 190));
        assert_eq!(figures.callers.iter().map(|caller| caller.samples).sum::<u32>(), 600);
    }

    #[test]
    fn libraries_beyond_those_that_have_a_sum_are_all_others() {
        let figures = tally((0..600).map(|at| (way(at as u32 % 60, at), 100)));
        let last = figures.callers.last().unwrap();
        assert!(last.places.is_empty() && last.samples > 400, "{last:?}");
        assert_eq!(figures.callers.iter().map(|caller| caller.samples).sum::<u32>(), 600);
    }
}
