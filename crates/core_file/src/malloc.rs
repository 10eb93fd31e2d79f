//! glibc's chunks. Its main arena is a variable of libc; from there all its memory is found, and compared with what glibc
//! has written down of it.

use std::collections::HashSet;

use memintro_abi::ALLOCATORS;
use memintro_analysis::account::arenas::{self, Heap, Layout};
use memintro_analysis::account::caches;
use memintro_analysis::account::chunks::{self, End, FLAGS, MAPPED, Mapped, PREVIOUS_IN_USE, State};
use memintro_analysis::leaks::nodes::{Node, State as Found};
use memintro_analysis::leaks::unused::Read;

use crate::image::{Image, PAGE, Segment};
use crate::search::own_ranges;

/// A chunk's head, before what malloc's caller has.
const HEAD: usize = 16;
/// Lists have 32-bit numbers.
const MOST_BLOCKS: usize = 1 << 31;
/// More parts of the main arena than there can be.
const MOST_PARTS: usize = 1 << 16;

/// What malloc has.
#[derive(Debug, Default)]
pub struct Malloc {
    /// All blocks, those in caches too, in the order of their addresses.
    pub nodes: Vec<Node>,
    /// Memory that is malloc's, in the order of its addresses: no roots.
    pub ranges: Vec<(usize, usize)>,
    /// Chunks that are free, and their bytes.
    pub free: (u64, u64),
    /// What could not be made sure.
    pub notes: Vec<String>,
    /// Only the blocks that the hook followed are known: malloc's other memory counts as in use.
    pub is_part: bool,
    sizes_of_parts: usize,
    caches: Vec<usize>,
}

impl Malloc {
    /// Finds all chunks.
    ///
    /// # Errors
    /// If glibc's memory is not there, or does not agree with itself.
    pub fn find(image: &Image<'_>) -> Result<Self, String> {
        let word = |at: usize| image.word(at);
        let Some((arena, layout)) = main_arena(image) else {
            let other = match allocator(image) {
                "unknown" => String::new(),
                name => {
                    format!(
                        " ({name} answered malloc: only blocks that memintro tracked in full mode can be judged)"
                    )
                }
            };
            return Err(format!("glibc's main arena was not found{other}: no verdict is given"));
        };
        let mut found = Self::default();
        let libc = image.segment(arena).and_then(|segment| segment.file);
        found.ranges.push((arena, arena + layout.size));
        let start = found.main(image, arena, layout)?;
        let mut heaps: Vec<(usize, Heap)> = Vec::new();
        let mut others = Vec::new();
        let is_whole = arenas::each_other(arena, layout, word, |other| others.push(other))
            && others
                .iter()
                .all(|other| arenas::each_heap(*other, layout, word, |heap| heaps.push((*other, heap))));
        if !is_whole {
            return Err("the list of glibc's arenas is torn: no verdict is given".to_owned());
        }
        for (other, heap) in heaps {
            let top = image.pointer(other + layout.top).unwrap_or(0);
            found.walk(image, heap.first, heap.end, top)?;
            found.ranges.push((heap.start, heap.end));
        }
        found.mapped(image);
        found.compare(image, libc, start)?;
        let mut free = HashSet::new();
        for chunk in std::mem::take(&mut found.caches) {
            caches::each_cached(chunk, word, |at, size| {
                found.free.1 += if free.insert(at) { size as u64 } else { 0 };
            });
        }
        if let Some(bins) = layout.fast_bins {
            for one in others.iter().chain([&arena]) {
                caches::each_fast(one + bins, true, word, |at, size| {
                    found.free.1 += if free.insert(at) { size as u64 } else { 0 };
                });
            }
        }
        found.free.0 += free.len() as u64;
        found.nodes.sort_unstable_by_key(|node| node.start);
        found.nodes.dedup_by_key(|node| node.start);
        for node in &mut found.nodes {
            if free.contains(&(node.start - HEAD)) {
                node.state = Found::Free;
            }
        }
        found.ranges.sort_unstable();
        if image.word(arena).is_some_and(|lock| lock & 0xffff_ffff != 0) {
            found.notes.push("a thread was in malloc at that moment".to_owned());
        }
        Ok(found)
    }

    /// The blocks that the hook had followed, where others are not known: why.
    #[must_use]
    pub fn of_followed(nodes: Vec<Node>, why: &str) -> Self {
        let why = why.trim_end_matches(": no verdict is given").trim_end_matches(". No verdict is given");
        let note = format!(
            "{why}. So only blocks that were tracked are judged; all its other memory is taken for memory in use, also what \
             malloc had free, so a leaked block may be taken for held"
        );
        Self { nodes, notes: vec![note], is_part: true, ..Self::default() }
    }

    /// The main arena: one piece that ends at the topmost chunk, or several. Returns where the first begins.
    fn main(&mut self, image: &Image<'_>, arena: usize, layout: Layout) -> Result<usize, String> {
        let torn = || "the memory of glibc's main arena is not in the file: no verdict is given".to_owned();
        let top = image.pointer(arena + layout.top).ok_or_else(torn)?;
        let size = image.pointer(top.checked_add(8).ok_or_else(torn)?).ok_or_else(torn)? & !(FLAGS as usize);
        let end = top.checked_add(size).ok_or_else(torn)?;
        let system = image.pointer(arena + layout.system_bytes).ok_or_else(torn)?;
        let start = end.checked_sub(system).ok_or_else(torn)?;
        let looks = image.word(start.saturating_add(8)).is_some_and(|head| head & FLAGS == PREVIOUS_IN_USE);
        if looks && start.is_multiple_of(16) {
            self.walk(image, start, end, top)?;
            self.ranges.push((start, end.next_multiple_of(PAGE)));
            return Ok(start);
        }
        // The end of the data segment could not be moved, so there are mappings as well.
        let mut first = 0;
        for segment in image.segments.iter().filter(|segment| may_have_chunks(segment)) {
            let mut at = segment.start;
            while at < segment.known_end() && self.ranges.len() < MOST_PARTS {
                let end = end_of_part(image, at, segment.known_end(), top);
                if let Some(end) = end {
                    self.walk(image, at, end, top)?;
                    self.ranges.push((at, end));
                    first = if first == 0 { at } else { first };
                }
                at = end.unwrap_or(at + PAGE);
            }
        }
        if self.sizes_of_parts.abs_diff(system) > PAGE {
            return Err(format!(
                "glibc's main arena has {system} bytes, and {} were found: no verdict is given",
                self.sizes_of_parts
            ));
        }
        Ok(first)
    }

    fn walk(&mut self, image: &Image<'_>, start: usize, end: usize, top: usize) -> Result<(), String> {
        let Self { nodes, caches, free, .. } = self;
        let ended = chunks::walk(
            start,
            end.saturating_add(1),
            top,
            |at| image.word(at),
            |at, size, state| match state {
                State::Used if nodes.len() < MOST_BLOCKS => {
                    nodes.push(Node::new(at + HEAD, size - 8));
                    if size == caches::CACHE {
                        caches.push(at);
                    }
                }
                State::Used => {}
                State::Free => *free = (free.0 + 1, free.1 + size as u64),
                State::Top => free.1 += size as u64,
            },
        );
        match ended {
            End::Whole(last) => {
                self.sizes_of_parts += last.next_multiple_of(PAGE).saturating_sub(start);
                Ok(())
            }
            End::Broken(at) => Err(format!(
                "glibc's chunks cannot be read to their end (at {at:#x}): a block was written beyond its end, or a thread was \
                 in malloc at that moment, or this part of memory is not in the file. No verdict is given"
            )),
        }
    }

    /// Blocks with a mapping of their own. What the hook has mapped for itself may begin like one: a table of blocks did,
    /// and no verdict on malloc's own word was left.
    fn mapped(&mut self, image: &Image<'_>) {
        let mut ranges = self.ranges.clone();
        ranges.extend(own_ranges(image).unwrap_or_default());
        ranges.sort_unstable();
        for segment in image.segments.iter().filter(|segment| may_have_chunks(segment)) {
            let mut at = segment.start;
            while at < segment.known_end() {
                let next = ranges.partition_point(|range| range.1 <= at);
                if let Some(range) = ranges.get(next).filter(|range| range.0 <= at) {
                    at = range.1.next_multiple_of(PAGE);
                    continue;
                }
                let one = chunks::mapped(at, segment.known_end() - at, |place| image.word(place));
                if let Some(Mapped { chunk, size }) = one {
                    let block = chunk + HEAD;
                    self.nodes.push(Node::new(block, at + size - block));
                    self.ranges.push((at, at + size));
                }
                at += one.map_or(PAGE, |one| one.size);
            }
        }
    }

    /// glibc counts blocks with a mapping of their own, beside where its data segment began.
    fn compare(&mut self, image: &Image<'_>, libc: Option<usize>, start: usize) -> Result<(), String> {
        let data = image.segments.iter().filter(|segment| segment.is_writable && segment.file == libc);
        for segment in data {
            let mut places = (segment.start..segment.known_end()).step_by(8);
            let Some((count, bytes)) =
                places.find_map(|at| arenas::counted_mapped(at, start, |at| image.word(at)))
            else {
                continue;
            };
            let mapped = self.nodes.iter().filter(|node| is_mapped(image, node.start));
            // In front of an aligned block, bytes were skipped.
            let skipped = |node: &Node| image.word(node.start - HEAD).unwrap_or(0);
            let sums = mapped
                .fold((0, 0), |sum, node| (sum.0 + 1, sum.1 + skipped(node) + (node.bytes + HEAD) as u64));
            if sums != (count, bytes) {
                return Err(format!(
                    "{} blocks with a mapping of their own ({} bytes) were found, and glibc has counted {count} ({bytes} \
                     bytes): no verdict is given",
                    sums.0, sums.1
                ));
            }
            return Ok(());
        }
        self.notes.push(
            "glibc's own count of large blocks was not found, so theirs could not be checked".to_owned(),
        );
        Ok(())
    }
}

fn is_mapped(image: &Image<'_>, block: usize) -> bool {
    image.word(block - 8).is_some_and(|head| head & MAPPED != 0)
}

fn may_have_chunks(segment: &Segment<'_>) -> bool {
    segment.is_writable && !segment.is_executable && segment.file.is_none()
}

/// Where the part of the main arena ends that begins at this page, if one does.
fn end_of_part(image: &Image<'_>, page: usize, end: usize, top: usize) -> Option<usize> {
    if image.word(page + 8)? & FLAGS != PREVIOUS_IN_USE || image.word(page)? != 0 {
        return None;
    }
    match chunks::walk(page, end.saturating_add(1), top, |at| image.word(at), |_, _, _| {}) {
        End::Whole(last) if last.is_multiple_of(PAGE) => Some(last),
        _ => None,
    }
}

fn main_arena(image: &Image<'_>) -> Option<(usize, Layout)> {
    let is_libc = |segment: &&Segment<'_>| {
        let path = segment.file.and_then(|file| image.files.get(file)).map_or(&b""[..], |file| file.path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        segment.is_writable && (name.starts_with(b"libc.so") || name.starts_with(b"libc-2"))
    };
    image.segments.iter().filter(is_libc).find_map(|segment| {
        (segment.start..segment.known_end())
            .step_by(8)
            .find_map(|at| arenas::main_arena(at, |at| image.word(at)).map(|layout| (at, layout)))
    })
}

/// Who answered malloc, as far as that can be known.
#[must_use]
pub fn allocator(image: &Image<'_>) -> &'static str {
    if main_arena(image).is_some() {
        return "glibc";
    }
    let other = ALLOCATORS.iter().map(|allocator| allocator.name).find(|name| {
        image.files.iter().any(|file| file.path.windows(name.len()).any(|part| part == name.as_bytes()))
    });
    other.unwrap_or("unknown")
}
