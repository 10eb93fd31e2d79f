//! The errors that a module can have.

use core::fmt;

/// Why a module cannot be read, with the wrong address or count if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// No `PT_DYNAMIC` program header.
    NoDynamicSection,
    /// The dynamic section lies outside of the module's readable segments.
    DynamicOutside(u64),
    /// The dynamic section has no `DT_NULL`.
    DynamicUnterminated,
    /// Relocations or hash tables, but no `DT_SYMTAB` or `DT_STRTAB`.
    NoSymbols,
    /// `DT_SYMENT`, `DT_RELAENT` or `DT_RELENT` is not the size that this machine has.
    EntrySize(u64),
    /// `DT_PLTREL` is neither `DT_RELA` nor `DT_REL`.
    PltKind(u64),
    /// A table (symbols, strings, relocations, versions) reaches outside of the module's readable segments.
    TableOutside(u64),
    /// A table's size in bytes is no multiple of its entry's.
    TableSize(u64),
    /// `DT_RELACOUNT` or `DT_RELCOUNT` is more than there are relocations.
    RelativeCount(u64),
    /// A relocation's slot lies outside of the module.
    SlotOutside(u64),
    /// A symbol index reaches outside of the symbol table's segment.
    SymbolIndex(u64),
    /// A symbol's name begins outside of the string table, or does not end in it.
    SymbolName(u64),
    /// A symbol's version is not among those that the module defines.
    VersionNumber(u16),
    /// A hash table's header or one of its counts does not fit the memory it lies in.
    HashHeader(u64),
    /// A hash chain leaves its table, or does not end.
    HashChain(u64),
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoDynamicSection => out.write_str("no dynamic section"),
            Self::DynamicOutside(at) => write!(out, "dynamic section at {at:#x} is outside of the module"),
            Self::DynamicUnterminated => out.write_str("dynamic section without DT_NULL"),
            Self::NoSymbols => out.write_str("no DT_SYMTAB or no DT_STRTAB"),
            Self::EntrySize(size) => {
                write!(out, "table entries of {size} bytes, which this machine does not have")
            }
            Self::PltKind(kind) => write!(out, "DT_PLTREL is {kind}, neither DT_RELA (7) nor DT_REL (17)"),
            Self::TableOutside(at) => write!(out, "table at {at:#x} reaches outside of the module"),
            Self::TableSize(size) => write!(out, "table of {size} bytes, no multiple of its entry's size"),
            Self::RelativeCount(count) => {
                write!(out, "{count} relative relocations, more than there are in all")
            }
            Self::SlotOutside(at) => write!(out, "relocated slot {at:#x} is outside of the module"),
            Self::SymbolIndex(index) => write!(out, "symbol {index} is outside of the symbol table"),
            Self::SymbolName(at) => {
                write!(out, "symbol name at string {at} does not lie in the string table")
            }
            Self::VersionNumber(number) => write!(out, "version {number} of a symbol is not defined"),
            Self::HashHeader(count) => write!(out, "hash table whose count of {count} cannot be"),
            Self::HashChain(index) => {
                write!(out, "hash chain that leaves its table or never ends, at {index}")
            }
        }
    }
}

impl core::error::Error for Malformed {}
