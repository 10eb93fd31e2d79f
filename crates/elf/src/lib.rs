//! Reads a loaded ELF module: which slots were relocated by symbol, and which functions it defines.
//! `object::read::elf` (0.40) does not replace it inside malloc: its `VersionTable` allocates, its look-ups by hash need a
//! `SymbolTable`, which it makes from section headers, and the loader maps none of these.
//!
//! The crate reads a module as the loader does: from a load address, program headers, and memory. The memory is
//! behind a [`Memory`], which returns only ranges that it has checked. Start at [`Module::read`].
//!
//! ```
//! use memintro_elf::{Machine, Malformed, Module, ProgramHeader, Slice};
//!
//! let memory = Slice { base: 0x1000, bytes: &[0; 64] };
//! let load = ProgramHeader { kind: ProgramHeader::LOAD, mem_size: 64, ..ProgramHeader::default() };
//! let read = Module::read(&memory, 0x1000, core::slice::from_ref(&load), Machine::X86_64);
//! assert_eq!(read.err(), Some(Malformed::NoDynamicSection));
//! ```
//!
//! Rule for neighbours: every byte may be hostile. No code here allocates, panics, uses `unsafe`, or loops longer
//! than the memory it was given. Inconsistent input is a [`Malformed`] that names the inconsistency.
#![no_std]
#![forbid(unsafe_code)]

mod dynamic;
mod error;
mod hash;
mod memory;
mod module;
mod note;
mod relocation;
mod segment;
mod symbol;

pub use error::Malformed;
pub use memory::{Memory, Slice};
pub use module::Module;
pub use note::build_id;
pub use relocation::{Machine, Relocation, RelocationKind};
pub use segment::ProgramHeader;
pub use symbol::Definition;
