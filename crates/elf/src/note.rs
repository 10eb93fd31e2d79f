//! Notes that the linker has written about a module.

use crate::memory::{Memory, u32_at};
use crate::segment::ProgramHeader;

const NT_GNU_BUILD_ID: u32 = 3;
const GNU: &[u8] = b"GNU\0";

/// The build id of the module that was loaded at `base`. Two modules with the same build id are the same. `None` if
/// there is none, or if its notes do not lie in readable memory.
pub fn build_id<'m, M: Memory + ?Sized>(
    memory: &'m M,
    base: u64,
    segments: &[ProgramHeader],
) -> Option<&'m [u8]> {
    segments.iter().filter(|segment| segment.kind == ProgramHeader::NOTE).find_map(|segment| {
        let range = segment.range(base);
        // Notes are padded to the alignment of the segment: 4 or 8 bytes.
        let align = if segment.align == 8 { 8 } else { 4 };
        let mut notes = memory.bytes(range.start, range.end.checked_sub(range.start)?)?;
        loop {
            let (name, text, kind) = (u32_at(notes, 0)?, u32_at(notes, 4)?, u32_at(notes, 8)?);
            let name_end = 12_usize.checked_add(name as usize)?;
            let text_at = name_end.checked_next_multiple_of(align)?;
            let text_end = text_at.checked_add(text as usize)?;
            if kind == NT_GNU_BUILD_ID && notes.get(12..name_end)? == GNU {
                return notes.get(text_at..text_end).filter(|id| !id.is_empty());
            }
            notes = notes.get(text_end.checked_next_multiple_of(align)?..)?;
        }
    })
}
