//! An ELF file laid out in memory as the loader would do it, but at an address of our choice and without relocation.

use memintro_elf::ProgramHeader;

/// The address of images.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;

/// A file's segments in one piece of memory.
#[derive(Debug)]
pub(crate) struct Image {
    /// Memory that begins at [`BASE`].
    pub(crate) bytes: Vec<u8>,
    /// The program headers.
    pub(crate) headers: Vec<ProgramHeader>,
    /// `e_machine`.
    pub(crate) machine: u16,
}

impl Image {
    /// Reads a file; `None` if its headers do not describe an image of at most `limit_bytes`.
    pub(crate) fn new(file: &[u8], limit_bytes: usize) -> Option<Self> {
        let word = |at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?));
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (offset, count) = (usize::try_from(long(32)?).ok()?, usize::from(word(56)?));
        let table = file.get(offset..)?.get(..count.checked_mul(56)?)?;
        let headers: Vec<_> = table.chunks_exact(56).map(header).collect();
        let mut bytes = Vec::new();
        for load in headers.iter().filter(|header| header.kind == ProgramHeader::LOAD) {
            let start = usize::try_from(load.address).ok()?;
            let end =
                start.checked_add(usize::try_from(load.mem_size).ok()?).filter(|end| *end <= limit_bytes)?;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            let len = usize::try_from(load.file_size.min(load.mem_size)).ok()?;
            let content = file.get(usize::try_from(load.file_offset).ok()?..)?;
            let content = content.get(..len).unwrap_or(content);
            bytes.get_mut(start..)?.get_mut(..content.len())?.copy_from_slice(content);
        }
        Some(Self { bytes, headers, machine: word(18)? })
    }
}

fn header(bytes: &[u8]) -> ProgramHeader {
    let long = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
    };
    let kind_and_flags = long(0);
    ProgramHeader {
        kind: kind_and_flags as u32,
        flags: (kind_and_flags >> 32) as u32,
        file_offset: long(8),
        address: long(16),
        physical_address: long(24),
        file_size: long(32),
        mem_size: long(40),
        align: long(48),
    }
}
