//! How many samples of each call site came through which native callers.
//!
//! Memory is bounded: a few chains for each site, then one for all others; and some thousand blocks of which it is asked
//! whether they are live, because a line that leaks may allocate a thousand blocks for each one that it leaks.
//!
//! What is kept here is read by a search for leaks in a core file, as all memory of the process. So room that is not used
//! yet is wiped: old addresses may be there.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use memintro_abi::CallerSample;

use crate::chain::Chain;
use crate::modules::Place;

/// Sites with a tally of their own.
const MOST_SITES: usize = 16_384;
/// Chains of each site.
const MOST_CHAINS: usize = 8;
/// Blocks of all sites that are remembered.
const MOST_BLOCKS: usize = 4_096;

/// The number of what is no chain of a site.
const OTHER: u8 = u8::MAX;
const RUBY: u8 = u8::MAX - 1;
const UNKNOWN: u8 = u8::MAX - 2;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    samples: u32,
    weight: u64,
}

impl Count {
    fn add(&mut self, weight: u32) {
        self.samples = self.samples.saturating_add(1);
        self.weight = self.weight.saturating_add(weight.into());
    }
}

#[derive(Debug, Default)]
struct Site {
    chains: Vec<(Vec<Place>, Count)>,
    other: Count,
    ruby: Count,
    unknown: Count,
}

impl Site {
    fn add(&mut self, chain: Chain, weight: u32) -> u8 {
        let (count, number) = match chain {
            Chain::Ruby => (&mut self.ruby, RUBY),
            Chain::Unknown => (&mut self.unknown, UNKNOWN),
            Chain::Native(mut places) => {
                let known = self.chains.iter().position(|(known, _)| *known == places);
                let at = known.or_else(|| {
                    (self.chains.len() < MOST_CHAINS).then(|| {
                        places.shrink_to_fit();
                        let at = self.chains.len();
                        insert(&mut self.chains, at, (places, Count::default()));
                        at
                    })
                });
                match at {
                    Some(at) => (&mut self.chains[at].1, at as u8),
                    None => (&mut self.other, OTHER),
                }
            }
        };
        count.add(weight);
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
    /// Its native callers, the greatest share of what is live first, then the greatest share of all.
    pub callers: Vec<CallerFigures>,
}

/// One native caller of a site. Shares are from 0 to 1, and estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerFigures {
    /// The innermost frame first; empty: all others.
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
        let chain = self.sites[at].1.add(chain, sample.weight);
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

    /// Forgets blocks that are not live any more, as far as is known.
    pub fn keep_live(&mut self, is_live: impl Fn(u64, u32) -> bool) {
        self.blocks.retain(|block| is_live(!block.inverted_address, block.serial));
    }

    /// What is known of the sites' native callers, by number of the site. Sites without any are left out. For what is
    /// live, [`Tally::keep_live`] must have been called.
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
    let counts =
        || site.chains.iter().map(|(_, count)| count).chain([&site.other, &site.ruby, &site.unknown]);
    let bytes = |block: &Block| f64::from(block.weight) * block.size as f64;
    let weight: u64 = counts().map(|count| count.weight).sum();
    let live_bytes: f64 = live.iter().map(bytes).sum();
    let caller = |number: u8, places: &[Place], count: &Count| {
        let own = || live.iter().filter(|block| block.chain == number);
        CallerFigures {
            places: places.to_vec(),
            samples: count.samples,
            live_samples: own().count() as u32,
            share: if weight == 0 { 0.0 } else { short(count.weight as f64 / weight as f64) },
            live_share: (live_bytes > 0.0)
                .then(|| short(own().map(bytes).fold(0.0, |sum, one| sum + one) / live_bytes)),
        }
    };
    let mut callers: Vec<CallerFigures> =
        site.chains.iter().enumerate().map(|(at, (places, count))| caller(at as u8, places, count)).collect();
    callers.sort_by(|one, other| {
        let of = |it: &CallerFigures| (it.live_share.unwrap_or(0.0), it.share);
        of(other).partial_cmp(&of(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    if site.other.samples > 0 {
        callers.push(caller(OTHER, &[], &site.other));
    }
    SiteFigures {
        samples: counts().map(|count| count.samples).sum(),
        live_samples: live.len() as u32,
        callers,
    }
}

/// A share with six digits, which every reader of JSON reads as the same number again.
fn short(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}
