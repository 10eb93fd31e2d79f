//! Reads the dynamic section: finds the tables, and checks that each lies in memory before it is read.

use crate::error::Malformed;
use crate::memory::{Memory, u64_at};

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_PLTRELSZ: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELAENT: u64 = 9;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SYMBOLIC: u64 = 16;
const DT_REL: u64 = 17;
const DT_RELSZ: u64 = 18;
const DT_RELENT: u64 = 19;
const DT_PLTREL: u64 = 20;
const DT_JMPREL: u64 = 23;
const DT_FLAGS: u64 = 30;
const DF_SYMBOLIC: u64 = 2;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_RELACOUNT: u64 = 0x6fff_fff9;
const DT_RELCOUNT: u64 = 0x6fff_fffa;
const DT_VERDEF: u64 = 0x6fff_fffc;

/// Bytes of an `Elf64_Sym`.
pub(crate) const SYMBOL_SIZE: usize = 24;
/// Bytes of an `Elf64_Rela`.
pub(crate) const RELA_SIZE: usize = 24;
/// Bytes of an `Elf64_Rel`.
pub(crate) const REL_SIZE: usize = 16;

/// The tables of one module. A table whose length is not in the section reaches to the end of its segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tables<'m> {
    /// `DT_SYMTAB`, to the end of its segment.
    pub(crate) symbols: &'m [u8],
    /// `DT_STRTAB`.
    pub(crate) strings: &'m [u8],
    /// `DT_RELA` without its leading relative ones.
    pub(crate) rela: &'m [u8],
    /// `DT_REL` without its leading relative ones.
    pub(crate) rel: &'m [u8],
    /// `DT_JMPREL`.
    pub(crate) plt: &'m [u8],
    /// Whether `plt` has addends.
    pub(crate) plt_is_rela: bool,
    /// `DT_GNU_HASH`, to the end of its segment.
    pub(crate) gnu_hash: Option<&'m [u8]>,
    /// `DT_HASH`, to the end of its segment.
    pub(crate) hash: Option<&'m [u8]>,
    /// `DT_VERSYM`, to the end of its segment.
    pub(crate) versions: Option<&'m [u8]>,
    /// `DT_VERDEF`, to the end of its segment.
    pub(crate) version_definitions: Option<&'m [u8]>,
}

/// The section's entries, unchecked.
#[derive(Default)]
struct Entries {
    symtab: Option<u64>,
    strtab: Option<u64>,
    strsz: u64,
    syment: Option<u64>,
    rela: Option<u64>,
    relasz: u64,
    relaent: Option<u64>,
    relacount: u64,
    rel: Option<u64>,
    relsz: u64,
    relent: Option<u64>,
    relcount: u64,
    jmprel: Option<u64>,
    pltrelsz: u64,
    pltrel: u64,
    gnu_hash: Option<u64>,
    hash: Option<u64>,
    versym: Option<u64>,
    verdef: Option<u64>,
}

impl Entries {
    fn read(section: &[u8]) -> Result<Self, Malformed> {
        let mut entries = Self::default();
        for entry in section.chunks_exact(16) {
            let (Some(tag), Some(value)) = (u64_at(entry, 0), u64_at(entry, 8)) else { break };
            match tag {
                DT_NULL => return Ok(entries),
                DT_SYMTAB => entries.symtab = Some(value),
                DT_STRTAB => entries.strtab = Some(value),
                DT_STRSZ => entries.strsz = value,
                DT_SYMENT => entries.syment = Some(value),
                DT_RELA => entries.rela = Some(value),
                DT_RELASZ => entries.relasz = value,
                DT_RELAENT => entries.relaent = Some(value),
                DT_RELACOUNT => entries.relacount = value,
                DT_REL => entries.rel = Some(value),
                DT_RELSZ => entries.relsz = value,
                DT_RELENT => entries.relent = Some(value),
                DT_RELCOUNT => entries.relcount = value,
                DT_JMPREL => entries.jmprel = Some(value),
                DT_PLTRELSZ => entries.pltrelsz = value,
                DT_PLTREL => entries.pltrel = value,
                DT_GNU_HASH => entries.gnu_hash = Some(value),
                DT_HASH => entries.hash = Some(value),
                DT_VERSYM => entries.versym = Some(value),
                DT_VERDEF => entries.verdef = Some(value),
                _ => {}
            }
        }
        Err(Malformed::DynamicUnterminated)
    }
}

/// Reads the dynamic section of a module that was loaded at `base`.
pub(crate) fn read<'m, M: Memory + ?Sized>(
    memory: &'m M,
    base: u64,
    section: &[u8],
) -> Result<Tables<'m>, Malformed> {
    let entries = Entries::read(section)?;
    let find = Finder { memory, base };
    let mut tables = Tables {
        rela: find.table(entries.rela, entries.relasz, entries.relaent, RELA_SIZE, entries.relacount)?,
        rel: find.table(entries.rel, entries.relsz, entries.relent, REL_SIZE, entries.relcount)?,
        ..Tables::default()
    };
    if entries.jmprel.is_some() && entries.pltrelsz != 0 {
        (tables.plt_is_rela, tables.plt) = match entries.pltrel {
            DT_RELA => (true, find.table(entries.jmprel, entries.pltrelsz, None, RELA_SIZE, 0)?),
            DT_REL => (false, find.table(entries.jmprel, entries.pltrelsz, None, REL_SIZE, 0)?),
            other => return Err(Malformed::PltKind(other)),
        };
    }
    tables.gnu_hash = entries.gnu_hash.map(|at| find.tail(at)).transpose()?;
    tables.hash = entries.hash.map(|at| find.tail(at)).transpose()?;
    tables.versions = entries.versym.map(|at| find.tail(at)).transpose()?;
    tables.version_definitions = entries.verdef.map(|at| find.tail(at)).transpose()?;
    match (entries.symtab, entries.strtab) {
        (Some(symtab), Some(strtab)) => {
            if entries.syment.is_some_and(|size| size != SYMBOL_SIZE as u64) {
                return Err(Malformed::EntrySize(entries.syment.unwrap_or(0)));
            }
            tables.symbols = find.tail(symtab)?;
            tables.strings = find.bytes(strtab, entries.strsz)?;
        }
        _ if tables.needs_symbols() => return Err(Malformed::NoSymbols),
        _ => {}
    }
    Ok(tables)
}

/// Offsets in the string table at which the names of the needed modules begin.
pub(crate) fn needed(section: &[u8]) -> impl Iterator<Item = u64> {
    all(section).filter_map(|(tag, value)| (tag == DT_NEEDED).then_some(value))
}

/// Whether the loader searches the module itself first for the module's symbols.
pub(crate) fn is_symbolic(section: &[u8]) -> bool {
    all(section).any(|(tag, value)| tag == DT_SYMBOLIC || (tag == DT_FLAGS && value & DF_SYMBOLIC != 0))
}

fn all(section: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let entries = section.chunks_exact(16).map_while(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)));
    entries.take_while(|(tag, _)| *tag != DT_NULL)
}

impl Tables<'_> {
    fn needs_symbols(&self) -> bool {
        let relocations = self.rela.len().max(self.rel.len()).max(self.plt.len());
        relocations > 0 || self.gnu_hash.is_some() || self.hash.is_some()
    }
}

/// Turns the section's pointers into checked slices.
struct Finder<'m, M: ?Sized> {
    memory: &'m M,
    base: u64,
}

impl<'m, M: Memory + ?Sized> Finder<'m, M> {
    /// glibc relocates these pointers in place if the section is writable. Those of the vDSO, and of a module that is
    /// still being loaded, are offsets from the load address.
    fn tail(&self, pointer: u64) -> Result<&'m [u8], Malformed> {
        let address = if pointer < self.base { self.base.wrapping_add(pointer) } else { pointer };
        self.memory.tail(address).ok_or(Malformed::TableOutside(pointer))
    }

    fn bytes(&self, pointer: u64, len: u64) -> Result<&'m [u8], Malformed> {
        let tail = self.tail(pointer)?;
        usize::try_from(len).ok().and_then(|len| tail.get(..len)).ok_or(Malformed::TableOutside(pointer))
    }

    /// A relocation table without its first `skip` entries, which are relative and not needed.
    fn table(
        &self,
        pointer: Option<u64>,
        len: u64,
        declared_size: Option<u64>,
        entry_size: usize,
        skip: u64,
    ) -> Result<&'m [u8], Malformed> {
        let (Some(pointer), true) = (pointer, len != 0) else { return Ok(&[]) };
        if let Some(size) = declared_size.filter(|size| *size != entry_size as u64) {
            return Err(Malformed::EntrySize(size));
        }
        if !len.is_multiple_of(entry_size as u64) {
            return Err(Malformed::TableSize(len));
        }
        let table = self.bytes(pointer, len)?;
        let skipped = usize::try_from(skip).ok().and_then(|skip| skip.checked_mul(entry_size));
        skipped.and_then(|skipped| table.get(skipped..)).ok_or(Malformed::RelativeCount(skip))
    }
}
