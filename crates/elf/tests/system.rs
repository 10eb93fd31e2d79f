//! Compares what this crate and binutils read from the system's own libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use memintro_elf::{Machine, Module, ProgramHeader, RelocationKind, Slice, build_id};

#[path = "support/image.rs"]
mod image;

use image::{BASE, Image};

/// A few libraries of every kind, including the large ones.
fn libraries() -> Vec<PathBuf> {
    let folder = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let mut all: Vec<_> = std::fs::read_dir(&folder)
        .expect("a Debian-like system")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")))
        .filter(|path| path.metadata().is_ok_and(|data| data.is_file() && data.len() < 40 << 20))
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    all.sort();
    all.dedup();
    let well_known = ["libc.so.6", "libstdc++.so.6", "libruby", "libgcc_s", "libm.so.6", "ld-linux"];
    let is_known = |path: &PathBuf| well_known.iter().any(|name| path.to_string_lossy().contains(name));
    let step = all.len() / 30 + 1;
    let some = all.iter().enumerate().filter(|(index, path)| index % step == 0 || is_known(path));
    some.map(|(_, path)| path.clone()).collect()
}

fn load(path: &Path) -> Option<Image> {
    Image::new(&std::fs::read(path).ok()?, 256 << 20).filter(|image| matches!(image.machine, 62 | 183))
}

fn machine(image: &Image) -> Machine {
    if image.machine == 183 { Machine::Aarch64 } else { Machine::X86_64 }
}

fn binutils(arguments: &[&str], path: &Path) -> String {
    let output = Command::new("readelf").args(arguments).arg(path).output().expect("readelf is installed");
    String::from_utf8(output.stdout).unwrap()
}

/// Offset, kind, name, addend.
type Entry = (u64, &'static str, String, i64);

fn by_binutils(path: &Path) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    for line in binutils(&["-Wr"], path).lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [offset, _, kind, _, name, rest @ ..] = fields.as_slice() else { continue };
        let kind = match *kind {
            "R_X86_64_64" | "R_AARCH64_ABS64" => "absolute",
            "R_X86_64_GLOB_DAT" | "R_AARCH64_GLOB_DAT" => "glob_dat",
            "R_X86_64_JUMP_SLOT" | "R_AARCH64_JUMP_SLOT" => "jump_slot",
            _ => continue,
        };
        let addend = match rest {
            ["+", addend] => i64::from_str_radix(addend, 16).unwrap(),
            ["-", addend] => -i64::from_str_radix(addend, 16).unwrap(),
            _ => continue,
        };
        let name = name.split('@').next().unwrap_or_default();
        if name.len() <= 255 {
            entries.insert((u64::from_str_radix(offset, 16).unwrap(), kind, name.to_owned(), addend));
        }
    }
    entries
}

fn by_us(image: &Image) -> BTreeSet<Entry> {
    let memory = Slice { base: BASE, bytes: &image.bytes };
    let module = Module::read(&memory, BASE, &image.headers, machine(image)).unwrap();
    let mut entries = BTreeSet::new();
    let visit = |relocation: memintro_elf::Relocation<'_>| {
        let kind = match relocation.kind {
            RelocationKind::Absolute => "absolute",
            RelocationKind::GlobDat => "glob_dat",
            RelocationKind::JumpSlot => "jump_slot",
        };
        let name = String::from_utf8(relocation.name.to_vec()).unwrap();
        entries.insert((relocation.slot - BASE, kind, name, relocation.addend));
    };
    module.relocations(visit).unwrap();
    entries
}

/// Changes the dynamic section as glibc does: its pointers become addresses.
fn relocate_dynamic_section(image: &mut Image) {
    let header = image.headers.iter().find(|header| header.kind == ProgramHeader::DYNAMIC).unwrap();
    let start = usize::try_from(header.address).unwrap();
    for at in (start..start + usize::try_from(header.mem_size).unwrap()).step_by(16) {
        let word = |at: usize| u64::from_le_bytes(image.bytes[at..at + 8].try_into().unwrap());
        if let 4..=7 | 17 | 23 | 0x6fff_fef5 | 0x6fff_fff0 = word(at) {
            let address = word(at + 8) + BASE;
            image.bytes[at + 8..at + 16].copy_from_slice(&address.to_le_bytes());
        }
    }
}

#[test]
fn relocations_are_those_that_readelf_lists() {
    let mut total = 0;
    for path in libraries() {
        let Some(mut image) = load(&path) else { continue };
        let expected = by_binutils(&path);
        assert_eq!(by_us(&image), expected, "{}", path.display());
        relocate_dynamic_section(&mut image);
        assert_eq!(by_us(&image), expected, "{} with its dynamic section relocated", path.display());
        total += expected.len();
    }
    assert!(total > 10_000, "only {total} relocations compared");
}

#[test]
fn definitions_are_those_that_readelf_lists() {
    let mut total = 0;
    for path in libraries() {
        let Some(image) = load(&path) else { continue };
        let memory = Slice { base: BASE, bytes: &image.bytes };
        let module = Module::read(&memory, BASE, &image.headers, machine(&image)).unwrap();
        let symbols = binutils(&["-W", "--dyn-syms"], &path);
        let mut by_name = std::collections::BTreeMap::<String, (BTreeSet<u64>, bool)>::new();
        for line in symbols.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, value, _, kind, binding, _, section, name, ..] = fields.as_slice() else { continue };
            // One `@` marks a version for old binaries, two mark the default version.
            let (name, is_default) = match name.split_once('@') {
                Some((name, version)) => (name, version.starts_with('@')),
                None => (*name, true),
            };
            let is_defined = *section != "UND"
                && *section != "ABS"
                && is_default
                && matches!(*kind, "FUNC" | "IFUNC" | "NOTYPE")
                && matches!(*binding, "GLOBAL" | "WEAK" | "UNIQUE");
            let known = by_name.entry(name.to_owned()).or_default();
            if is_defined {
                known.0.insert(u64::from_str_radix(value, 16).unwrap());
                known.1 |= *kind == "IFUNC";
            }
        }
        for (name, (values, is_indirect)) in by_name {
            let found = module.defined(name.as_bytes()).unwrap();
            let place = path.display();
            match found {
                Some(found) => {
                    assert!(values.contains(&(found.address - BASE)), "{place}: {name}: {found:x?}")
                }
                None => {
                    let is_inside = |value: &u64| *value != 0 && module.contains(BASE + value, 1);
                    assert!(!values.iter().any(is_inside), "{place}: {name} was not found");
                }
            }
            assert!(found.is_none_or(|found| found.indirect <= is_indirect), "{place}: {name}");
            total += 1;
        }
    }
    assert!(total > 10_000, "only {total} names compared");
}

#[test]
fn a_name_with_an_old_and_a_new_version_is_the_new_one() {
    let libc = Path::new("/usr/lib").join(format!("{}-linux-gnu/libc.so.6", std::env::consts::ARCH));
    let image = load(&libc).unwrap();
    let memory = Slice { base: BASE, bytes: &image.bytes };
    let module = Module::read(&memory, BASE, &image.headers, machine(&image)).unwrap();
    let versions = binutils(&["-W", "--dyn-syms"], &libc);
    let default =
        versions.lines().find(|line| line.contains(" memcpy@@GLIBC_")).expect("two versions of memcpy");
    let value = u64::from_str_radix(default.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let found = module.defined(b"memcpy").unwrap().unwrap();
    assert_eq!((found.address - BASE, found.indirect), (value, default.contains("IFUNC")));
}

#[test]
fn a_definition_is_one_for_its_own_version_only() {
    let mut total = 0;
    for path in libraries() {
        let Some(image) = load(&path) else { continue };
        let memory = Slice { base: BASE, bytes: &image.bytes };
        let module = Module::read(&memory, BASE, &image.headers, machine(&image)).unwrap();
        for line in binutils(&["-W", "--dyn-syms"], &path).lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, value, _, "FUNC", "GLOBAL" | "WEAK", _, section, name, ..] = fields.as_slice() else {
                continue;
            };
            if *section == "UND" || *section == "ABS" {
                continue;
            }
            let value = u64::from_str_radix(value, 16).unwrap();
            let find = |name: &str, version: &str| {
                let versions = [&b"not_there"[..], version.as_bytes()];
                module.defined_for(name.as_bytes(), &versions).unwrap().map(|found| found.address - BASE)
            };
            match name.split_once("@@") {
                Some((name, version)) => {
                    assert_eq!(find(name, version), Some(value), "{}: {name}@@{version}", path.display());
                    assert_ne!(find(name, "OTHER_"), Some(value), "{}: {name}@@{version}", path.display());
                    total += 1;
                }
                None if !name.contains('@') => {
                    assert!(find(name, "OTHER_").is_some(), "{}: {name}", path.display())
                }
                None => {}
            }
        }
    }
    assert!(total > 2_000, "only {total} versions compared");
}

#[test]
fn what_a_library_needs_and_its_build_are_what_readelf_says() {
    let (mut needs, mut builds, mut symbolic) = (0, 0, 0);
    for path in libraries() {
        let Some(mut image) = load(&path) else { continue };
        let dynamic = binutils(&["-Wd"], &path);
        let needed: Vec<_> = dynamic
            .lines()
            .filter(|line| line.contains("(NEEDED)"))
            .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
            .collect();
        let is_symbolic = dynamic.lines().any(|line| {
            line.contains("(SYMBOLIC)") || (line.contains("(FLAGS)") && line.contains(" SYMBOLIC"))
        });
        let notes = binutils(&["-Wn"], &path);
        let build = notes.lines().find_map(|line| line.split_once("Build ID: ")).map(|(_, id)| id.trim());
        for relocated in [false, true] {
            if relocated {
                relocate_dynamic_section(&mut image);
            }
            let memory = Slice { base: BASE, bytes: &image.bytes };
            let module = Module::read(&memory, BASE, &image.headers, machine(&image)).unwrap();
            assert_eq!(
                module.needed().collect::<Vec<_>>(),
                needed.iter().map(|name| name.as_bytes()).collect::<Vec<_>>()
            );
            assert_eq!(module.is_symbolic(), is_symbolic, "{}", path.display());
            let id = build_id(&memory, BASE, &image.headers);
            let id = id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
            assert_eq!(id.as_deref(), build, "{}", path.display());
        }
        needs += needed.len();
        builds += usize::from(build.is_some());
        symbolic += usize::from(is_symbolic);
    }
    assert!(needs > 30 && builds > 20, "only {needs} names and {builds} builds, {symbolic} symbolic");
}
