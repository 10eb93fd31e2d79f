//! Relocations that refer to a symbol.

use crate::dynamic::{REL_SIZE, RELA_SIZE, Tables};
use crate::error::Malformed;
use crate::memory::u64_at;
use crate::symbol::{Definition, Symbol};

/// The machine whose relocation numbers a module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// `EM_X86_64`.
    X86_64,
    /// `EM_AARCH64`, little-endian.
    Aarch64,
}

impl Machine {
    /// The machine that this code was built for, if it is one of these.
    pub const NATIVE: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
        Some(Self::Aarch64)
    } else {
        None
    };

    fn kind(self, number: u32) -> Option<RelocationKind> {
        match (self, number) {
            (Self::X86_64, 7) | (Self::Aarch64, 1026) => Some(RelocationKind::JumpSlot),
            (Self::X86_64, 6) | (Self::Aarch64, 1025) => Some(RelocationKind::GlobDat),
            (Self::X86_64, 1) | (Self::Aarch64, 257) => Some(RelocationKind::Absolute),
            _ => None,
        }
    }
}

/// The purpose of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationKind {
    /// Calls through the procedure linkage table; may be bound at the first call.
    JumpSlot,
    /// The global offset table's pointer to a function.
    GlobDat,
    /// A pointer in data, `R_X86_64_64` or `R_AARCH64_ABS64`. Once the module is loaded, it belongs to the program,
    /// which may change it.
    Absolute,
}

/// One slot that the loader fills with the address of a symbol.
#[derive(Clone, Copy, Debug)]
pub struct Relocation<'m> {
    /// Address of the slot: eight bytes that lie in one of the module's segments.
    pub slot: u64,
    /// What the slot is for.
    pub kind: RelocationKind,
    /// Name of the symbol, without its NUL and its version.
    pub name: &'m [u8],
    /// The addend to the symbol's address (0 if the relocation has no field for it).
    pub addend: i64,
    /// The module's own definition of the symbol, if it has one.
    pub local: Option<Definition>,
}

/// A symbol's index, its name if that is not too long, and its definition.
type Named<'m> = (u32, Option<&'m [u8]>, Option<Definition>);

/// Visits all tables, except symbols with names of more than 255 bytes. Types are compared first, and a symbol that
/// repeats is read once, so most relocations cost one load and one compare.
pub(crate) fn visit<'m>(
    tables: &Tables<'m>,
    base: u64,
    machine: Machine,
    mut contains: impl FnMut(u64) -> bool,
    mut each: impl FnMut(Relocation<'m>),
) -> Result<(), Malformed> {
    let mut last: Option<Named<'m>> = None;
    let mut one = |entry: &[u8], has_addend: bool| -> Result<(), Malformed> {
        let (Some(offset), Some(info)) = (u64_at(entry, 0), u64_at(entry, 8)) else { return Ok(()) };
        let (index, Some(kind)) = ((info >> 32) as u32, machine.kind(info as u32)) else { return Ok(()) };
        if index == 0 {
            return Ok(());
        }
        let (name, local) = match last {
            Some((known, name, local)) if known == index => (name, local),
            _ => {
                let symbol = Symbol::read(tables, index)?;
                (symbol.name(tables)?, symbol.definition(base))
            }
        };
        last = Some((index, name, local));
        let slot = base.wrapping_add(offset);
        if !contains(slot) {
            return Err(Malformed::SlotOutside(slot));
        }
        let Some(name) = name else { return Ok(()) };
        let addend = if has_addend { u64_at(entry, 16).unwrap_or(0) as i64 } else { 0 };
        each(Relocation { slot, kind, name, addend, local });
        Ok(())
    };
    let plt_size = if tables.plt_is_rela { RELA_SIZE } else { REL_SIZE };
    for entry in tables.rela.chunks_exact(RELA_SIZE) {
        one(entry, true)?;
    }
    for entry in tables.rel.chunks_exact(REL_SIZE) {
        one(entry, false)?;
    }
    for entry in tables.plt.chunks_exact(plt_size) {
        one(entry, tables.plt_is_rela)?;
    }
    Ok(())
}
