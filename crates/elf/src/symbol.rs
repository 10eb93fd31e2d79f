//! Symbols and their names.

use core::ffi::CStr;

use crate::dynamic::{SYMBOL_SIZE, Tables};
use crate::error::Malformed;
use crate::memory::{u16_at, u32_at, u64_at};

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;
const SHN_UNDEF: u16 = 0;
const SHN_LORESERVE: u16 = 0xff00;
const VERSION_HIDDEN: u16 = 0x8000;
/// `VER_NDX_GLOBAL`; 0 is `VER_NDX_LOCAL`.
const VERSION_GLOBAL: u16 = 1;

/// A function that a module defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its address; for an indirect function, the address of its resolver.
    pub address: u64,
    /// `STT_GNU_IFUNC`: a call of `address` returns the function's address.
    pub indirect: bool,
}

/// Longest symbol name that relocations are reported for. Without a limit, a hostile string table would make the work
/// quadratic. Functions that are looked up by name have far shorter names.
const NAME_LIMIT: usize = 255;

/// One `Elf64_Sym`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    name: u32,
    info: u8,
    section: u16,
    pub(crate) value: u64,
}

impl Symbol {
    pub(crate) fn read(tables: &Tables<'_>, index: u32) -> Result<Self, Malformed> {
        let wrong = Malformed::SymbolIndex(u64::from(index));
        let at = (index as usize).checked_mul(SYMBOL_SIZE).ok_or(wrong)?;
        let entry = tables.symbols.get(at..).and_then(|tail| tail.get(..SYMBOL_SIZE)).ok_or(wrong)?;
        let (name, info) = (u32_at(entry, 0).ok_or(wrong)?, *entry.get(4).ok_or(wrong)?);
        Ok(Self {
            name,
            info,
            section: u16_at(entry, 6).ok_or(wrong)?,
            value: u64_at(entry, 8).ok_or(wrong)?,
        })
    }

    /// The name without its NUL; `None` if it is longer than the limit.
    pub(crate) fn name<'m>(&self, tables: &Tables<'m>) -> Result<Option<&'m [u8]>, Malformed> {
        let wrong = Malformed::SymbolName(u64::from(self.name));
        let tail = tables.strings.get(self.name as usize..).ok_or(wrong)?;
        let start = tail.get(..=NAME_LIMIT).unwrap_or(tail);
        match CStr::from_bytes_until_nul(start) {
            Ok(name) => Ok(Some(name.to_bytes())),
            Err(_) if start.len() > NAME_LIMIT => Ok(None),
            Err(_) => Err(wrong),
        }
    }

    /// Compares names. It does not read to the end of a name that differs in its first bytes.
    pub(crate) fn is_named(&self, tables: &Tables<'_>, name: &[u8]) -> Result<bool, Malformed> {
        let tail =
            tables.strings.get(self.name as usize..).ok_or(Malformed::SymbolName(u64::from(self.name)))?;
        Ok(tail.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)))
    }

    fn is_function(&self) -> bool {
        matches!(self.info & 0xf, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE)
    }

    /// The function that this symbol defines in a module at `base`, if it defines one.
    pub(crate) fn definition(&self, base: u64) -> Option<Definition> {
        // Reserved sections (absolute, common) are data.
        let defined = self.section != SHN_UNDEF && self.section < SHN_LORESERVE;
        let function = self.is_function() && self.info >> 4 != STB_LOCAL && self.value != 0;
        let indirect = self.info & 0xf == STT_GNU_IFUNC;
        (defined && function).then(|| Definition { address: base.wrapping_add(self.value), indirect })
    }

    /// The PLT entry that a non-PIE program has instead of a function that it imports.
    pub(crate) fn canonical_plt(&self, base: u64) -> Option<u64> {
        let stands_in = self.section == SHN_UNDEF && self.value != 0 && self.is_function();
        stands_in.then(|| base.wrapping_add(self.value))
    }
}

/// Whether the symbol is kept for old binaries only: `dlsym@GLIBC_2.2.5` beside `dlsym@@GLIBC_2.34`.
pub(crate) fn is_hidden_version(tables: &Tables<'_>, index: u32) -> bool {
    version(tables, index).is_some_and(|version| version & VERSION_HIDDEN != 0)
}

/// The name of the version that the symbol has; `None` for a symbol without one, which matches all versions.
pub(crate) fn version_name<'m>(tables: &Tables<'m>, index: u32) -> Result<Option<&'m [u8]>, Malformed> {
    let Some(number) = version(tables, index).map(|version| version & !VERSION_HIDDEN) else {
        return Ok(None);
    };
    if number <= VERSION_GLOBAL {
        return Ok(None);
    }
    let definitions = tables.version_definitions.ok_or(Malformed::VersionNumber(number))?;
    let mut at = 0_usize;
    // Each entry is read once, because the links only lead forwards.
    loop {
        let entry = definitions.get(at..).ok_or(Malformed::VersionNumber(number))?;
        let field = |at: usize| u32_at(entry, at).ok_or(Malformed::VersionNumber(number));
        if u16_at(entry, 4) == Some(number) {
            let name = u32_at(entry, field(12)? as usize).ok_or(Malformed::VersionNumber(number))?;
            return text(tables, name).map(Some);
        }
        match field(16)? {
            0 => return Err(Malformed::VersionNumber(number)),
            next => at = at.saturating_add(next as usize),
        }
    }
}

/// The text that begins at this offset of the string table.
pub(crate) fn text<'m>(tables: &Tables<'m>, at: u32) -> Result<&'m [u8], Malformed> {
    let wrong = Malformed::SymbolName(u64::from(at));
    let tail = tables.strings.get(at as usize..).ok_or(wrong)?;
    CStr::from_bytes_until_nul(tail).map(CStr::to_bytes).map_err(|_| wrong)
}

fn version(tables: &Tables<'_>, index: u32) -> Option<u16> {
    tables.versions.zip((index as usize).checked_mul(2)).and_then(|(table, at)| u16_at(table, at))
}
