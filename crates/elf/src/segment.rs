//! Program headers: the ranges that a module occupies, and their purposes.

use core::ops::Range;

/// One program header, laid out as `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramHeader {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// `p_offset`: where it begins in the file.
    pub file_offset: u64,
    /// `p_vaddr`: where it begins in memory, before the load address is added.
    pub address: u64,
    /// `p_paddr`, which has no meaning here.
    pub physical_address: u64,
    /// `p_filesz`: bytes of it in the file.
    pub file_size: u64,
    /// `p_memsz`: bytes of it in memory.
    pub mem_size: u64,
    /// `p_align`.
    pub align: u64,
}

impl ProgramHeader {
    /// `PT_LOAD`: mapped memory.
    pub const LOAD: u32 = 1;
    /// `PT_DYNAMIC`: the dynamic section.
    pub const DYNAMIC: u32 = 2;
    /// `PT_NOTE`: notes of the linker's.
    pub const NOTE: u32 = 4;
    /// `PT_GNU_RELRO`: read-only once relocated.
    pub const RELRO: u32 = 0x6474_e552;
    /// `PF_X`.
    pub const EXECUTABLE: u32 = 1;
    /// `PF_R`.
    pub const READABLE: u32 = 4;

    /// The range that it has in a module loaded at `base`; empty if that is not a valid range of addresses.
    pub fn range(&self, base: u64) -> Range<u64> {
        let start = base.wrapping_add(self.address);
        start..start.checked_add(self.mem_size).unwrap_or(start)
    }

    /// Whether `len` bytes at `address` lie in it.
    pub fn holds(&self, base: u64, address: u64, len: u64) -> bool {
        let range = self.range(base);
        range.start <= address && address.checked_add(len).is_some_and(|end| end <= range.end)
    }
}
