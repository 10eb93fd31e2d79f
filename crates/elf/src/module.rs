//! One loaded module.

use core::ops::Range;

use crate::dynamic::{self, Tables};
use crate::error::Malformed;
use crate::hash;
use crate::memory::Memory;
use crate::relocation::{self, Machine, Relocation};
use crate::segment::ProgramHeader;
use crate::symbol::{self, Definition, is_hidden_version};

/// A module whose dynamic section has been read and whose tables lie in memory.
#[derive(Clone, Copy, Debug)]
pub struct Module<'m> {
    base: u64,
    segments: &'m [ProgramHeader],
    machine: Machine,
    section: &'m [u8],
    tables: Tables<'m>,
}

impl<'m> Module<'m> {
    /// Reads the dynamic section of the module that was loaded at `base` (`dlpi_addr`).
    ///
    /// # Errors
    /// When the section is missing, or one of its tables does not lie in readable memory.
    pub fn read<M: Memory + ?Sized>(
        memory: &'m M,
        base: u64,
        segments: &'m [ProgramHeader],
        machine: Machine,
    ) -> Result<Self, Malformed> {
        let header = segments.iter().find(|segment| segment.kind == ProgramHeader::DYNAMIC);
        let range = header.ok_or(Malformed::NoDynamicSection)?.range(base);
        let section = memory.bytes(range.start, range.end.saturating_sub(range.start));
        let section = section.ok_or(Malformed::DynamicOutside(range.start))?;
        Ok(Self { base, segments, machine, section, tables: dynamic::read(memory, base, section)? })
    }

    /// Visits every relocation that refers to a symbol by way of a function slot or a pointer in data.
    /// Symbols with names of more than 255 bytes are passed over.
    ///
    /// # Errors
    /// At the first entry that is inconsistent; the entries before it have been visited.
    pub fn relocations(&self, each: impl FnMut(Relocation<'m>)) -> Result<(), Malformed> {
        let mut last = Range { start: 0, end: 0 };
        let contains = |slot: u64| {
            let Some(end) = slot.checked_add(8) else { return false };
            if !(last.start <= slot && end <= last.end) {
                match self.loads().find(|segment| segment.holds(self.base, slot, 8)) {
                    Some(segment) => last = segment.range(self.base),
                    None => return false,
                }
            }
            true
        };
        relocation::visit(&self.tables, self.base, self.machine, contains, each)
    }

    /// The function called `name` that the module defines and to which an unversioned reference would be bound. The
    /// canonical PLT entry of a non-PIE program is not a definition.
    ///
    /// # Errors
    /// When the hash table leads out of the tables.
    pub fn defined(&self, name: &[u8]) -> Result<Option<Definition>, Malformed> {
        hash::find(&self.tables, name, |index, symbol| {
            // Symbols without a type may mark the end of a segment (`_end`), which cannot be called.
            let inside = |found: &Definition| self.contains(found.address, 1);
            symbol.definition(self.base).filter(inside).filter(|_| !is_hidden_version(&self.tables, index))
        })
    }

    /// As [`Module::defined`], for a reference to a version whose name begins with one of `versions`. A definition
    /// without a version matches every version; one with another version does not match.
    ///
    /// # Errors
    /// When the hash table or the versions lead out of the tables.
    pub fn defined_for(&self, name: &[u8], versions: &[&[u8]]) -> Result<Option<Definition>, Malformed> {
        let mut wrong = None;
        let found = hash::find(&self.tables, name, |index, symbol| {
            let definition = symbol.definition(self.base).filter(|found| self.contains(found.address, 1))?;
            match symbol::version_name(&self.tables, index) {
                Ok(version) => {
                    let fits =
                        version.is_none_or(|version| versions.iter().any(|begin| version.starts_with(begin)));
                    (fits && !is_hidden_version(&self.tables, index)).then_some(definition)
                }
                Err(error) => {
                    wrong = Some(error);
                    None
                }
            }
        })?;
        wrong.map_or(Ok(found), Err)
    }

    /// Whether references of the module to functions that it defines itself are bound to these, even if other modules
    /// define them too.
    pub fn is_symbolic(&self) -> bool {
        dynamic::is_symbolic(self.section)
    }

    /// The names of the modules that this one needs (`DT_NEEDED`), as far as they can be read.
    pub fn needed(&self) -> impl Iterator<Item = &'m [u8]> {
        let tables = self.tables;
        dynamic::needed(self.section)
            .filter_map(move |at| symbol::text(&tables, u32::try_from(at).ok()?).ok())
    }

    /// The PLT entry that a non-PIE program has instead of the function `name` that it imports. In such a process
    /// `&malloc` is this address everywhere.
    ///
    /// # Errors
    /// When the hash table leads out of the tables.
    pub fn canonical_plt(&self, name: &[u8]) -> Result<Option<u64>, Malformed> {
        hash::find(&self.tables, name, |_, symbol| symbol.canonical_plt(self.base))
    }

    /// Whether `len` bytes at `address` lie in one of the module's loaded segments.
    pub fn contains(&self, address: u64, len: u64) -> bool {
        self.loads().any(|segment| segment.holds(self.base, address, len))
    }

    /// Whether `address` lies in the module's code.
    pub fn is_code(&self, address: u64) -> bool {
        let mut code = self.loads().filter(|segment| segment.flags & ProgramHeader::EXECUTABLE != 0);
        code.any(|segment| segment.holds(self.base, address, 1))
    }

    /// The pages that the loader makes read-only after relocation: it rounds both ends down to `page_size`, a
    /// power of two. Empty without RELRO.
    pub fn relro(&self, page_size: u64) -> Range<u64> {
        let header = self.segments.iter().find(|segment| segment.kind == ProgramHeader::RELRO);
        let range = header.map_or(0..0, |segment| segment.range(self.base));
        let mask = !page_size.wrapping_sub(1);
        range.start & mask..range.end & mask
    }

    fn loads(&self) -> impl Iterator<Item = &'m ProgramHeader> {
        self.segments.iter().filter(|segment| segment.kind == ProgramHeader::LOAD)
    }
}
