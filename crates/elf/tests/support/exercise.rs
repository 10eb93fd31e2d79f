//! Calls every function of the reader on one file, for fuzzing and for the replay of its corpus.

use memintro_elf::{Machine, Malformed, Module, Slice, build_id};

use crate::image::{BASE, Image};

/// Large enough that the headers may choose their addresses, small enough for a fuzzer.
const LIMIT_BYTES: usize = 4 << 20;

/// Names that real modules have, and some that they do not have.
const NAMES: [&[u8]; 6] = [b"malloc", b"free", b"_Znwm", b"answer", b"", b"a name that is not there"];

/// Reads the file as a module and returns all errors found. Returns `None` if the file could not be mapped.
pub(crate) fn exercise(file: &[u8]) -> Option<Vec<Malformed>> {
    let image = Image::new(file, LIMIT_BYTES)?;
    let machine = if image.machine == 183 { Machine::Aarch64 } else { Machine::X86_64 };
    let memory = Slice { base: BASE, bytes: &image.bytes };
    let module = match Module::read(&memory, BASE, &image.headers, machine) {
        Ok(module) => module,
        Err(malformed) => return Some(vec![malformed]),
    };
    let visited = module.relocations(|relocation| {
        assert!(module.contains(relocation.slot, 8), "slot {:#x} is outside", relocation.slot);
        assert!(!relocation.name.contains(&0), "the name {:?} has a NUL", relocation.name);
    });
    let mut wrong = Vec::from_iter(visited.err());
    for name in NAMES {
        match module.defined(name) {
            Ok(Some(definition)) => assert!(module.contains(definition.address, 1)),
            Ok(None) => {}
            Err(malformed) => wrong.push(malformed),
        }
        let _ = module.canonical_plt(name);
        match module.defined_for(name, &[b"GLIBC_"]) {
            Ok(Some(definition)) => assert!(module.contains(definition.address, 1)),
            Ok(None) => {}
            Err(malformed) => wrong.push(malformed),
        }
    }
    assert!(module.needed().all(|name| !name.contains(&0)));
    let _ = module.is_symbolic();
    let _ = build_id(&memory, BASE, &image.headers);
    let relro = module.relro(4096);
    assert!(relro.start % 4096 == 0 && relro.end % 4096 == 0);
    for malformed in &wrong {
        assert!(!malformed.to_string().is_empty());
    }
    Some(wrong)
}
