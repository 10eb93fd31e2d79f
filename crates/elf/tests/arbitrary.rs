//! For arbitrary bytes, there is no panic, no endless loop, and no address outside of the module.

use memintro_elf::{Machine, Module, ProgramHeader, Slice, build_id};
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/exercise.rs"]
mod exercise;
#[path = "support/image.rs"]
mod image;

use exercise::exercise;

const X86_64: &[u8] = include_bytes!("../fuzz/corpus/module/x86-64.so");
const AARCH64: &[u8] = include_bytes!("../fuzz/corpus/module/aarch64.so");

fn headers() -> impl Strategy<Value = Vec<ProgramHeader>> {
    let kind = prop_oneof![
        Just(ProgramHeader::LOAD),
        Just(ProgramHeader::DYNAMIC),
        Just(ProgramHeader::RELRO),
        Just(ProgramHeader::NOTE),
    ];
    let place = prop_oneof![0_u64..4096, any::<u64>()];
    let header = (kind, any::<u32>(), place.clone(), place).prop_map(|(kind, flags, address, mem_size)| {
        ProgramHeader { kind, flags, address, mem_size, ..ProgramHeader::default() }
    });
    vec(header, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_memory(bytes in vec(any::<u8>(), 0..4096), headers in headers(), base in any::<u64>()) {
        let memory = Slice { base, bytes: &bytes };
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let Ok(module) = Module::read(&memory, base, &headers, machine) else { continue };
            let _ = module.relocations(|relocation| assert!(module.contains(relocation.slot, 8)));
            let _ = module.defined(b"malloc");
            let _ = module.canonical_plt(b"malloc");
            let _ = module.defined_for(b"malloc", &[b"GLIBC_"]);
            let _ = (module.needed().count(), module.is_symbolic(), build_id(&memory, base, &headers));
            let _ = (module.relro(4096), module.is_code(base));
        }
    }

    #[test]
    fn real_libraries_with_a_few_bytes_changed(
        changes in vec((0_usize..2304, any::<u8>()), 1..12),
        of_aarch64 in any::<bool>(),
    ) {
        let mut file = if of_aarch64 { AARCH64 } else { X86_64 }.to_vec();
        for (at, byte) in changes {
            if let Some(place) = file.get_mut(at) {
                *place = byte;
            }
        }
        exercise(&file);
    }

    #[test]
    fn real_libraries_with_words_set_to_extremes(
        changes in vec((0_usize..288, prop_oneof![
            Just(u64::MAX), Just(0), Just(1), Just(u64::from(u32::MAX)), Just(1 << 63), Just(image::BASE), any::<u64>(),
        ]), 1..6),
        of_aarch64 in any::<bool>(),
    ) {
        let mut file = if of_aarch64 { AARCH64 } else { X86_64 }.to_vec();
        for (index, word) in changes {
            if let Some(place) = file.get_mut(index * 8..index * 8 + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        exercise(&file);
    }
}
