//! Unwinding a copied stack finds the same frames as glibc's `backtrace`, which unwinds the running one.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(missing_docs, reason = "a test")]

mod support;

use std::hint::black_box;

use memintro_native::Unwinder;
use support::{Own, registers, stack};

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut libc::c_void, size: libc::c_int) -> libc::c_int;
}

/// Both unwinders at one place, up to the frame with this address in it.
#[inline(never)]
fn both(end: u64) -> (Vec<u64>, Vec<u64>) {
    let mut buffer = [std::ptr::null_mut(); 128];
    // SAFETY: room for so many.
    let count = unsafe { backtrace(buffer.as_mut_ptr(), 128) };
    let of = registers();
    let read = stack(of.sp, end);
    let mut unwinder = Unwinder::new(0, Vec::new());
    let ours = unwinder.frames(of, read, &Own);
    let theirs = buffer[..count as usize].iter().map(|address| address.addr() as u64).collect();
    (ours, theirs)
}

#[repr(align(64))]
struct Aligned([u64; 24]);

#[inline(never)]
fn deep(depth: u32, end: u64, seed: u64) -> (Vec<u64>, Vec<u64>) {
    // Frames of many sizes, some of them aligned to more than the platform asks for.
    if depth == 0 {
        return both(end);
    }
    let found = match depth % 3 {
        0 => {
            let text = black_box([seed as u8; 300]);
            let found = deep(depth - 1, end, seed.wrapping_mul(31));
            black_box(&text);
            found
        }
        1 => {
            let words = black_box(Aligned([seed; 24]));
            let found = deep(depth - 1, end, words.0[3] ^ seed);
            black_box(&words.0);
            found
        }
        _ => {
            let size = black_box(seed % 5 + 1);
            let list: Vec<u64> = (0..size).collect();
            let found = std::panic::catch_unwind(|| deep(depth - 1, end, size)).unwrap();
            black_box(&list);
            found
        }
    };
    black_box(depth);
    found
}

#[test]
fn frames_are_those_of_backtrace() {
    for depth in [1, 2, 3, 7, 12] {
        // Below the frame of this function everything belongs to the functions that it has called.
        let here = black_box(0_u64);
        let end = (&raw const here).addr() as u64;
        let (ours, theirs) = deep(depth, end, u64::from(depth));
        // The innermost frame differs: each has its own call. The outer end is where the copy ends.
        let shared = &theirs[1..];
        let found = &ours[1..];
        assert!(found.len() > depth as usize, "{depth}: {found:x?}");
        assert_eq!(found, &shared[..found.len()], "depth {depth}");
        black_box(here);
    }
}

#[test]
fn threads_and_small_stacks_are_followed() {
    let found = std::thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(|| {
            let here = black_box(0_u64);
            let end = (&raw const here).addr() as u64;
            let (ours, theirs) = deep(5, end, 3);
            black_box(here);
            ours.len() > 5 && ours[1..] == theirs[1..ours.len()]
        })
        .unwrap()
        .join()
        .unwrap();
    assert!(found);
}
