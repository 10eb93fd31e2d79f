//! Replays the fuzzer's corpus on stable Rust. Its malformed files are made here: two real libraries with one error
//! each. Each must be refused for exactly that error.

use std::path::PathBuf;

use memintro_elf::{Machine, Malformed, Module, ProgramHeader, RelocationKind, Slice};

#[path = "support/exercise.rs"]
mod exercise;
#[path = "support/image.rs"]
mod image;

use exercise::exercise;
use image::{BASE, Image};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/module")
}

fn seed(name: &str) -> Vec<u8> {
    std::fs::read(corpus().join(name)).expect("the seed is committed")
}

/// A library that will be damaged. Below the data segment, file offsets equal addresses.
struct File(Vec<u8>);

impl File {
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// File offset of the program header of this kind.
    fn header(&self, kind: u32) -> usize {
        let count = usize::from(u16::from_le_bytes([self.0[56], self.0[57]]));
        let is_kind = |at: &usize| self.0[*at..*at + 4] == kind.to_le_bytes();
        (0..count).map(|index| 64 + index * 56).find(is_kind).expect("such a header")
    }

    /// File offset of the dynamic entry with this tag.
    fn entry(&self, tag: u64) -> usize {
        let start = self.u64(self.header(ProgramHeader::DYNAMIC) + 8) as usize;
        (0..).map(|index| start + index * 16).find(|at| self.u64(*at) == tag).expect("such an entry")
    }

    fn value(&self, tag: u64) -> usize {
        self.u64(self.entry(tag) + 8) as usize
    }

    fn set_value(&mut self, tag: u64, value: u64) {
        self.set(self.entry(tag) + 8, &value.to_le_bytes());
    }

    fn drop_entry(&mut self, tag: u64) {
        self.set(self.entry(tag), &0x6fff_1234_u64.to_le_bytes());
    }
}

const HASH: u64 = 4;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const RELA: u64 = 7;
const RELASZ: u64 = 8;
const RELAENT: u64 = 9;
const STRSZ: u64 = 10;
const SYMENT: u64 = 11;
const PLTRELSZ: u64 = 2;
const PLTREL: u64 = 20;
const JMPREL: u64 = 23;
const GNU_HASH: u64 = 0x6fff_fef5;

type Damage = fn(&mut File);
type Expected = fn(&Malformed) -> bool;

/// File name, the change to `x86-64.so`, and the error that the reader must return.
const DAMAGED: &[(&str, Damage, Expected)] = &[
    (
        "no-dynamic-section",
        |file| file.set(file.header(ProgramHeader::DYNAMIC), &0x6474_e551_u32.to_le_bytes()),
        |said| *said == Malformed::NoDynamicSection,
    ),
    (
        "dynamic-section-outside",
        |file| file.set(file.header(ProgramHeader::DYNAMIC) + 16, &0x7fff_ffff_0000_u64.to_le_bytes()),
        |said| matches!(said, Malformed::DynamicOutside(_)),
    ),
    (
        "dynamic-section-at-the-end-of-addresses",
        |file| file.set(file.header(ProgramHeader::DYNAMIC) + 16, &u64::MAX.to_le_bytes()),
        |said| matches!(said, Malformed::DynamicOutside(_)),
    ),
    (
        "dynamic-section-too-long",
        |file| file.set(file.header(ProgramHeader::DYNAMIC) + 40, &u64::MAX.to_le_bytes()),
        |said| matches!(said, Malformed::DynamicOutside(_) | Malformed::DynamicUnterminated),
    ),
    (
        "dynamic-section-without-end",
        |file| file.set(file.header(ProgramHeader::DYNAMIC) + 40, &32_u64.to_le_bytes()),
        |said| *said == Malformed::DynamicUnterminated,
    ),
    ("no-symbol-table", |file| file.drop_entry(SYMTAB), |said| *said == Malformed::NoSymbols),
    ("no-string-table", |file| file.drop_entry(STRTAB), |said| *said == Malformed::NoSymbols),
    ("symbol-entry-size", |file| file.set_value(SYMENT, 16), |said| *said == Malformed::EntrySize(16)),
    ("relocation-entry-size", |file| file.set_value(RELAENT, 0), |said| *said == Malformed::EntrySize(0)),
    ("plt-kind", |file| file.set_value(PLTREL, 99), |said| *said == Malformed::PltKind(99)),
    (
        "relocations-outside",
        |file| file.set_value(RELA, 0xffff_ffff_ffff_fff0),
        |said| matches!(said, Malformed::TableOutside(_)),
    ),
    (
        "relocation-count-huge",
        |file| file.set_value(RELASZ, 24 << 40),
        |said| matches!(said, Malformed::TableOutside(_)),
    ),
    ("relocation-size-odd", |file| file.set_value(RELASZ, 95), |said| *said == Malformed::TableSize(95)),
    (
        "plt-relocation-count-huge",
        |file| file.set_value(PLTRELSZ, u64::MAX / 24 * 24),
        |said| matches!(said, Malformed::TableOutside(_)),
    ),
    (
        "plt-relocations-outside",
        |file| file.set_value(JMPREL, 0x4000_0000),
        |said| *said == Malformed::TableOutside(0x4000_0000),
    ),
    (
        "relative-count-huge",
        |file| {
            file.set(file.entry(SYMENT), &[0x6fff_fff9_u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat())
        },
        |said| *said == Malformed::RelativeCount(u64::MAX),
    ),
    (
        "slot-outside",
        |file| file.set(file.value(RELA), &0x8000_0000_u64.to_le_bytes()),
        |said| *said == Malformed::SlotOutside(BASE + 0x8000_0000),
    ),
    (
        "slot-across-the-end",
        |file| file.set(file.value(RELA), &0x4e1_u64.to_le_bytes()),
        |said| *said == Malformed::SlotOutside(BASE + 0x4e1),
    ),
    (
        "symbol-index-huge",
        |file| file.set(file.value(RELA) + 12, &u32::MAX.to_le_bytes()),
        |said| *said == Malformed::SymbolIndex(u32::MAX.into()),
    ),
    (
        "symbol-name-outside",
        |file| file.set(file.value(SYMTAB) + 3 * 24, &u32::MAX.to_le_bytes()),
        |said| *said == Malformed::SymbolName(u32::MAX.into()),
    ),
    (
        "string-table-without-end",
        |file| {
            let (at, len) = (file.value(STRTAB), file.value(STRSZ));
            file.set(at, &vec![b'x'; len]);
        },
        |said| matches!(said, Malformed::SymbolName(_)),
    ),
    (
        "string-table-size-huge",
        |file| file.set_value(STRSZ, u64::MAX),
        |said| matches!(said, Malformed::TableOutside(_)),
    ),
    (
        "gnu-hash-bloom-of-zero-words",
        |file| file.set(file.value(GNU_HASH) + 8, &[0; 4]),
        |said| *said == Malformed::HashHeader(0),
    ),
    (
        "gnu-hash-bloom-huge",
        |file| file.set(file.value(GNU_HASH) + 8, &u32::MAX.to_le_bytes()),
        |said| *said == Malformed::HashHeader(u32::MAX.into()),
    ),
    (
        "gnu-hash-buckets-huge",
        |file| file.set(file.value(GNU_HASH), &u32::MAX.to_le_bytes()),
        |said| matches!(said, Malformed::HashHeader(_) | Malformed::HashChain(_)),
    ),
    (
        "gnu-hash-chain-before-its-table",
        |file| {
            let at = file.value(GNU_HASH);
            file.set(at + 4, &u32::MAX.to_le_bytes());
            file.set(at + 16, &u64::MAX.to_le_bytes());
        },
        |said| matches!(said, Malformed::HashChain(_)),
    ),
    (
        "gnu-hash-outside",
        |file| file.set_value(GNU_HASH, 0x7fff_0000),
        |said| *said == Malformed::TableOutside(0x7fff_0000),
    ),
    (
        "hash-symbols-huge",
        |file| {
            file.drop_entry(GNU_HASH);
            file.set(file.value(HASH) + 4, &u32::MAX.to_le_bytes());
        },
        |said| *said == Malformed::HashHeader(u32::MAX.into()),
    ),
    (
        "hash-chain-loops",
        |file| {
            file.drop_entry(GNU_HASH);
            let at = file.value(HASH);
            let buckets = u32::from_le_bytes(file.0[at..at + 4].try_into().unwrap()) as usize;
            let symbols = u32::from_le_bytes(file.0[at + 4..at + 8].try_into().unwrap());
            for bucket in 0..buckets {
                file.set(at + 8 + bucket * 4, &1_u32.to_le_bytes());
            }
            for symbol in 1..symbols {
                let next = symbol % (symbols - 1) + 1;
                file.set(at + 8 + (buckets + symbol as usize) * 4, &next.to_le_bytes());
            }
        },
        |said| matches!(said, Malformed::HashChain(_)),
    ),
    (
        "hash-chain-leaves-its-table",
        |file| {
            file.drop_entry(GNU_HASH);
            let at = file.value(HASH);
            let buckets = u32::from_le_bytes(file.0[at..at + 4].try_into().unwrap()) as usize;
            for bucket in 0..buckets {
                file.set(at + 8 + bucket * 4, &0x00ff_ffff_u32.to_le_bytes());
            }
        },
        |said| *said == Malformed::HashChain(0x00ff_ffff),
    ),
];

#[test]
fn each_damage_is_named() {
    for (name, damage, expected) in DAMAGED {
        let mut file = File(seed("x86-64.so"));
        damage(&mut file);
        let path = corpus().join(name);
        if std::env::var_os("MEMINTRO_WRITE_CORPUS").is_some() {
            std::fs::write(&path, &file.0).unwrap();
        }
        assert_eq!(std::fs::read(&path).ok(), Some(file.0.clone()), "{name}: not the committed file");
        let wrong = exercise(&file.0).expect("a file that can be mapped");
        assert!(wrong.iter().any(expected), "{name}: {wrong:?}");
    }
}

#[test]
fn the_whole_corpus_is_read_without_a_panic() {
    let files: Vec<_> = std::fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= DAMAGED.len() + 2, "{} files", files.len());
    for path in files {
        exercise(&std::fs::read(path).unwrap());
    }
}

#[test]
fn any_cut_of_a_real_library_is_read_without_a_panic() {
    for name in ["x86-64.so", "aarch64.so"] {
        let whole = seed(name);
        for len in 0..whole.len() {
            exercise(&whole[..len]);
        }
    }
}

/// Both seeds are built from the same lines: a call of its own malloc, a call of strdup, a slot of the GOT for free,
/// and pointers in data to calloc, to the eighth byte of free and to the table itself.
#[test]
fn both_machines_are_understood() {
    for (name, machine) in [("x86-64.so", Machine::X86_64), ("aarch64.so", Machine::Aarch64)] {
        let image = Image::new(&seed(name), 1 << 20).unwrap();
        let memory = Slice { base: BASE, bytes: &image.bytes };
        let module = Module::read(&memory, BASE, &image.headers, machine).unwrap();
        let mut found = Vec::new();
        let visit = |relocation: memintro_elf::Relocation<'_>| {
            let name = String::from_utf8(relocation.name.to_vec()).unwrap();
            found.push((name, relocation.kind, relocation.addend, relocation.local.is_some()));
        };
        module.relocations(visit).unwrap();
        found.sort_by_key(|(name, kind, addend, _)| (name.clone(), *kind as u8, *addend));
        let expected = [
            ("calloc", RelocationKind::Absolute, 0, false),
            ("free", RelocationKind::GlobDat, 0, false),
            ("free", RelocationKind::Absolute, 8, false),
            ("malloc", RelocationKind::JumpSlot, 0, true),
            ("strdup", RelocationKind::JumpSlot, 0, false),
            ("table", RelocationKind::Absolute, 0, false),
        ];
        let expected = expected.map(|(name, kind, addend, local)| (name.to_owned(), kind, addend, local));
        assert_eq!(found, expected, "{name}");
        assert!(module.defined(b"answer").unwrap().is_some(), "{name}");
        assert!(module.defined(b"malloc").unwrap().is_some(), "{name}");
        assert_eq!(module.defined(b"free").unwrap(), None, "{name}: undefined symbols are no definitions");
        assert_eq!(module.defined(b"table").unwrap(), None, "{name}: data is no function");
    }
}
