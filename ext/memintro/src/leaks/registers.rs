//! How many registers of other threads are unknown.
//!
//! A thread of Ruby that waits inside Ruby has saved its registers in its stack before: Ruby's own collector needs them
//! as well. A thread that waits anywhere else may have kept an address in a register that functions leave as it was; one
//! that runs, in any. So many blocks, and no more, may be held although nothing in memory points to them. Where a group
//! of leaked blocks has no more, it is unknown whether any of them leaked.

use memintro_analysis::account::PAGE;
use memintro_analysis::account::maps::{self, Mapping};
use memintro_analysis::account::space::Space;

use super::threads::Waiting;
use crate::account::frozen::read;
use crate::copy::own_memory::slice;

/// Registers that a function leaves as they were.
#[cfg(target_arch = "x86_64")]
const LASTING: u64 = 6;
#[cfg(not(target_arch = "x86_64"))]
const LASTING: u64 = 19;
/// All of a thread that runs, in words: general ones, and those of 256 bits.
const ALL: u64 = 15 + 16 * 4;
/// So far above a stack pointer the code is looked for that waits.
const NEAR: usize = 64 << 10;
/// Frames of the C library's calls that wait are smaller than this. So near a stack pointer there is the return address to
/// whoever called one; what is left over from earlier calls may lie before it.
const FRAME: usize = 320;

/// What a piece of code is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// The C library, which calls nothing of a program while it waits; and what leaves words on stacks, but does not wait:
    /// the loader, and memintro itself.
    Library,
    Ruby,
    Other,
}

/// Where the code of this process is.
pub(super) struct Codes {
    ranges: &'static [(usize, usize, u8)],
}

impl Codes {
    /// `None`: there is no memory.
    pub(super) fn new(maps: &[u8]) -> Option<Self> {
        let mut count = 0;
        maps::each(maps, |mapping| count += usize::from(mapping.executable));
        let ranges = slice::<(usize, usize, u8)>(count)?;
        let (library, ruby) = (
            name_at(maps, libc::poll as *const () as usize),
            name_at(maps, rb_sys::rb_gc as *const () as usize),
        );
        let own = name_at(maps, Self::new as *const () as usize);
        let mut used = 0;
        maps::each(maps, |mapping| {
            let kind = match mapping.name {
                b"" => Code::Other,
                name if name == ruby => Code::Ruby,
                name if name == library || name == own || is_named(name, b"libmemintro_hook") => {
                    Code::Library
                }
                name if is_named(name, b"ld-linux") => Code::Library,
                _ => Code::Other,
            };
            if let Some(place) = ranges.get_mut(used).filter(|_| mapping.executable) {
                *place = (mapping.start, mapping.end, kind as u8);
                used += 1;
            }
        });
        Some(Self { ranges })
    }

    fn code_at(&self, address: usize) -> Option<Code> {
        let next = self.ranges.partition_point(|range| range.1 <= address);
        let (_, _, kind) = *self.ranges.get(next).filter(|range| range.0 <= address)?;
        [Code::Library, Code::Ruby, Code::Other].into_iter().find(|code| *code as u8 == kind)
    }

    /// Whether the innermost code of this stack, but for the C library's, is Ruby's own.
    fn is_in_ruby(&self, stack_pointer: usize, there: &Space<'_>) -> bool {
        let Some(area) = there.area(stack_pointer) else { return false };
        let end = area.end.min(stack_pointer.saturating_add(NEAR));
        let mut is_ruby = false;
        let mut at = stack_pointer.next_multiple_of(8);
        while at + 8 <= end && !(is_ruby && at >= stack_pointer + FRAME) {
            if at.is_multiple_of(PAGE) && !there.is_resident(at) {
                at += PAGE;
                continue;
            }
            // SAFETY: within a readable mapping of this process, in which nothing else runs.
            match self.code_at(unsafe { read(at) } as usize) {
                Some(Code::Ruby) => is_ruby = true,
                Some(Code::Other) => return false,
                Some(Code::Library) | None => {}
            }
            at += 8;
        }
        is_ruby
    }
}

/// Whether the file's name begins so.
fn is_named(path: &[u8], beginning: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(beginning))
}

/// The file whose code is at this address.
fn name_at(maps: &[u8], address: usize) -> &[u8] {
    let mut found: &[u8] = b"";
    maps::each(maps, |mapping: Mapping<'_>| {
        if (mapping.start..mapping.end).contains(&address) {
            found = mapping.name;
        }
    });
    found
}

/// Threads whose registers are unknown, and how many registers these are. `others`: threads of which nothing is
/// known.
pub(super) fn unknown(codes: &Codes, there: &Space<'_>, waiting: &[Waiting], others: u64) -> (u64, u64) {
    let elsewhere =
        waiting.iter().filter(|thread| !codes.is_in_ruby(thread.stack_pointer, there)).count() as u64;
    (elsewhere.saturating_add(others), others.saturating_mul(ALL).saturating_add(elsewhere * LASTING))
}
