//! A small core file: libc's data with a main arena, a heap of eight blocks, a stack that holds some of them, one page of
//! Ruby's heap, one thread.

use memintro_abi::RANGES_SIGN;

pub(crate) const LIBC: u64 = 0x7000_0000;
const HOOK: u64 = 0x7100_0000;
const OWN: u64 = 0x7200_0000;
pub(crate) const HEAP: u64 = 0x5000_0000;
pub(crate) const STACK: u64 = 0x7ff0_0000;
pub(crate) const PAGES: u64 = 0x6000_0000;
const BODY: u64 = 16 << 10;
/// Bytes of a chunk, with its head.
pub(crate) const CHUNK: u64 = 112;
/// The address of a block.
pub(crate) const fn block(number: u64) -> u64 {
    HEAP + number * CHUNK + 16
}

fn put(memory: &mut [u8], at: u64, value: u64) {
    memory[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
}

fn note(kind: u32, text: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for number in [5, text.len() as u32, kind] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"CORE\0\0\0\0");
    note.extend(text);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// Blocks 0 to 7: a register holds 0, the stack 1, and 1 holds 2. An object holds 3 by its address; a garbage one, which
/// nothing reaches, 4 as an integer. 5 and 6 point to each other. Nothing holds 7.
pub(crate) fn core() -> Vec<u8> {
    core_of(false)
}

/// The same with memintro's hook, whose own memory begins like a block with a mapping of its own.
pub(crate) fn core_with_hook() -> Vec<u8> {
    core_of(true)
}

fn core_of(has_hook: bool) -> Vec<u8> {
    let mut libc = vec![0; 4096];
    let arena = 64;
    let top = HEAP + 8 * CHUNK;
    let last_list = arena + 112 + 252 * 8;
    put(&mut libc, arena + 96, top);
    put(&mut libc, last_list, LIBC + last_list - 16);
    put(&mut libc, last_list + 8, LIBC + last_list - 16);
    put(&mut libc, arena + 2160, LIBC + arena);
    put(&mut libc, arena + 2184, 8192);
    // What glibc has counted of blocks with a mapping of their own.
    put(&mut libc, 3000, 1 << 48);
    put(&mut libc, 3032, HEAP);

    let mut heap = vec![0; 8192];
    for number in 0..8 {
        put(&mut heap, number * CHUNK + 8, CHUNK | 1);
    }
    put(&mut heap, 8 * CHUNK + 8, (8192 - 8 * CHUNK) | 1);
    put(&mut heap, block(1) - HEAP + 8, block(2) + 40);
    put(&mut heap, block(5) - HEAP, block(6));
    put(&mut heap, block(6) - HEAP, block(5));
    // The description of Ruby's page is block 0.
    put(&mut heap, block(0) - HEAP, 40 | 400 << 16);
    put(&mut heap, block(0) - HEAP + 24, PAGES + 16);

    let mut pages = vec![0; BODY as usize];
    put(&mut pages, 0, block(0));
    put(&mut pages, 16, 0x0c);
    put(&mut pages, 16 + 24, block(3));
    put(&mut pages, 56, 0x0c);
    put(&mut pages, 56 + 24, block(4) << 1 | 1);

    let mut stack = vec![0; 4096];
    // Below the stack pointer, where nothing is in use.
    put(&mut stack, 8, block(7));
    put(&mut stack, 2048, block(1));
    put(&mut stack, 2056, PAGES + 16);

    let mut status = vec![0; 112 + 27 * 8 + 8];
    put(&mut status, 112 + 8, block(0));
    put(&mut status, 112 + 19 * 8, STACK + 1024);
    let mut files = Vec::new();
    let of_files = [1 + u64::from(has_hook), 4096, LIBC, LIBC + 4096, 0, HOOK, HOOK + 4096, 0];
    for number in &of_files[..if has_hook { 8 } else { 5 }] {
        files.extend(u64::to_le_bytes(*number));
    }
    files.extend(b"/lib/libc.so.6\0");
    if has_hook {
        files.extend(b"/lib/libmemintro_hook.so\0");
    }
    let notes = [note(1, &status), note(0x4649_4c45, &files)].concat();

    let mut pieces = vec![(HEAP, heap), (PAGES, pages), (LIBC, libc), (STACK, stack)];
    if has_hook {
        let (mut hook, mut own) = (vec![0; 4096], vec![0; 8192]);
        hook[64..80].copy_from_slice(&RANGES_SIGN);
        put(&mut hook, 80, HOOK + 128);
        put(&mut hook, 128, OWN);
        put(&mut hook, 136, OWN + 8192);
        const MAPPED: u64 = 2;
        put(&mut own, 8, 4096 | MAPPED);
        pieces.extend([(HOOK, hook), (OWN, own)]);
    }
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..20].copy_from_slice(&[4, 0, 62, 0]);
    file[20] = 1;
    put(&mut file, 32, 64);
    file[52..54].copy_from_slice(&64_u16.to_le_bytes());
    file[54..56].copy_from_slice(&56_u16.to_le_bytes());
    file[56] = 1 + pieces.len() as u8;
    let mut at = 64 + 56 * (1 + pieces.len() as u64);
    let mut header = |kind: u32, flags: u32, address: u64, bytes: &[u8]| {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for number in [at, address, 0, bytes.len() as u64, bytes.len() as u64, 1] {
            file.extend(u64::to_le_bytes(number));
        }
        at += bytes.len() as u64;
    };
    header(4, 4, 0, &notes);
    for (address, bytes) in &pieces {
        header(1, 6, *address, bytes);
    }
    file.extend(notes);
    for (_, bytes) in pieces {
        file.extend(bytes);
    }
    file
}
