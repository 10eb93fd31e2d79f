//! Pages of Ruby's heap, known by their form: each begins with the address of its description, and that says where the
//! page's first slot is, how large slots are, and how many there are.

use std::collections::HashMap;

use memintro_analysis::leaks::unused::Read;

use crate::image::Image;

/// Pages begin at multiples of this; since Ruby 3.2 of four times as much.
const LEAST_PAGE: usize = 16 << 10;
const LARGEST_PAGE: usize = 64 << 10;
/// The first slot comes this soon.
const FIRST_SLOT: usize = 512;
/// Words of the description in which its address is looked for.
const WORDS: usize = 12;
/// The least slot; larger ones are there since Ruby 3.2.
pub const SLOT: usize = 40;
const MOST_SLOT: usize = 1024;
const TYPE: u64 = 0x1f;
const T_NONE: u64 = 0;
const T_MOVED: u64 = 0x1e;

/// A page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Where its memory begins.
    pub body: usize,
    /// Its first slot.
    pub start: usize,
    /// The address after its last one.
    pub end: usize,
    /// Bytes from one slot to the next.
    pub stride: usize,
}

/// All pages that were found.
#[derive(Debug, Default)]
pub struct Heap {
    /// In the order of their addresses.
    pub pages: Vec<Page>,
    /// Bytes of each.
    pub page_bytes: usize,
}

impl Heap {
    /// Looks at each place where a page may begin.
    #[must_use]
    pub fn find(image: &Image<'_>) -> Self {
        let mut by_place: HashMap<usize, Vec<Page>> = HashMap::new();
        for segment in
            image.segments.iter().filter(|it| it.is_writable && !it.is_executable && it.file.is_none())
        {
            let first = segment.start.next_multiple_of(LEAST_PAGE);
            for body in (first..segment.known_end()).step_by(LEAST_PAGE) {
                if let Some((place, page)) = page(image, body) {
                    by_place.entry(place).or_default().push(page);
                }
            }
        }
        // In one Ruby the address is at one place; what has it elsewhere only looks like a page.
        let mut pages = by_place.into_values().max_by_key(Vec::len).unwrap_or_default();
        let largest = pages.iter().map(|page| page.end - page.body).max().unwrap_or(0);
        let page_bytes = if largest > LEAST_PAGE { LARGEST_PAGE } else { LEAST_PAGE };
        pages.retain(|page| page.body.is_multiple_of(page_bytes));
        pages.sort_unstable_by_key(|page| page.body);
        Self { pages, page_bytes }
    }

    /// The page in which a slot begins at this address.
    #[must_use]
    pub fn page_of(&self, slot: usize) -> Option<&Page> {
        let page = self.pages.get(self.pages.partition_point(|page| page.end <= slot))?;
        (page.start <= slot && (slot - page.start).is_multiple_of(page.stride)).then_some(page)
    }
}

fn page(image: &Image<'_>, body: usize) -> Option<(usize, Page)> {
    let description = image.pointer(body).filter(|at| *at != 0 && at.is_multiple_of(8))?;
    let sizes = image.word(description)?;
    let (stride, count) = ((sizes & 0xffff) as usize, (sizes >> 16 & 0xffff) as usize);
    if !(SLOT..=MOST_SLOT).contains(&stride) || !stride.is_multiple_of(8) || count == 0 {
        return None;
    }
    (1..WORDS).find_map(|place| {
        let start = image.pointer(description.checked_add(place * 8)?)?;
        let end = start.checked_add(stride * count)?;
        let is_one = body < start
            && start - body < FIRST_SLOT
            && start.is_multiple_of(8)
            && end <= body + LARGEST_PAGE;
        is_one.then_some((place, Page { body, start, end, stride }))
    })
}

impl Page {
    /// Slots in use, those that await their finalizer too: where each is, and its type.
    pub fn slots<'a>(self, image: &'a Image<'_>) -> impl Iterator<Item = (usize, u8)> + 'a {
        (self.start..self.end).step_by(self.stride).filter_map(|slot| match image.word(slot)? & TYPE {
            T_NONE | T_MOVED => None,
            kind => Some((slot, kind as u8)),
        })
    }
}

/// The name of a type, as in Ruby's headers.
#[must_use]
pub fn type_name(kind: u8) -> &'static str {
    match kind {
        0x01 => "T_OBJECT",
        0x02 => "T_CLASS",
        0x03 => "T_MODULE",
        0x05 => "T_STRING",
        0x06 => "T_REGEXP",
        0x07 => "T_ARRAY",
        0x08 => "T_HASH",
        0x09 => "T_STRUCT",
        0x0a => "T_BIGNUM",
        0x0b => "T_FILE",
        0x0c => "T_DATA",
        0x0d => "T_MATCH",
        0x14 => "T_SYMBOL",
        0x1a => "T_IMEMO",
        0x1c => "T_ICLASS",
        0x1d => "T_ZOMBIE",
        _ => "another type",
    }
}
