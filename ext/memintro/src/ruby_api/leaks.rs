//! Blocks that nothing points to, for Ruby: the lines of frozen copies as text.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use magnus::{Error, RArray, RModule, RString, Ruby, function, prelude::*};

use super::errors;
use super::heap::checked;
use super::without_gvl::wait_without_gvl;
use crate::account;
use crate::copy::{self, own_memory::has_room};
use crate::heap::find;
use crate::leaks::{self, Held, Refused, Scan, Wanted};
use crate::symbols;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("leaks", function!(take, 4))?;
    native.define_singleton_method("address_name", function!(address_name, 1))?;
    native.define_singleton_method("class_name_at", function!(class_name_at, 1))?;
    native.define_singleton_method("malloc_in_use", function!(malloc_in_use, 0))
}

/// Between two copies.
const BETWEEN: Duration = Duration::from_millis(20);

/// `[text, whether it is whole, milliseconds for which Ruby stood still, how many copies there were, bytes in use before
/// and after as malloc has them, the signal that has ended the copy or 0]`. `twice`: where another thread may have run, what counts is what nothing reached in either of
/// two copies.
fn take(ruby: &Ruby, glibc: bool, first_words: bool, twice: bool, seconds: u32) -> Result<RArray, Error> {
    let held = Held::capture();
    let wanted = Wanted { glibc, first_words, seconds: seconds.clamp(1, 600) };
    let (mut first, mut pause, mut in_use) = scan(ruby, wanted, &held, None)?;
    let (mut text, mut whole) = wait_without_gvl(|interrupted| first.finish(interrupted))?;
    let (mut copies, mut signal) = (1, first.signal());
    if twice && first.may_change && whole && first.unreached() > 0 {
        let due = Instant::now() + BETWEEN;
        wait_without_gvl(|interrupted| sleep_until(due, interrupted))?;
        let (mut second, more, again) = scan(ruby, wanted, &held, Some(&first))?;
        pause += more;
        in_use = again;
        (text, whole) = wait_without_gvl(|interrupted| second.finish(interrupted))?;
        (copies, signal) = (2, second.signal());
    }
    let answer = ruby.ary_new_capa(6);
    let made: RString = ruby.str_from_slice(&text);
    answer.push(made)?;
    answer.push(whole)?;
    answer.push(pause)?;
    answer.push(copies)?;
    answer.push(in_use)?;
    answer.push(signal)?;
    Ok(answer)
}

/// `None`: the flag was set before.
fn sleep_until(due: Instant, interrupted: &AtomicBool) -> Option<()> {
    const STEP: Duration = Duration::from_millis(1);
    while Instant::now() < due {
        if interrupted.load(Ordering::Relaxed) {
            return None;
        }
        copy::sleep(STEP);
    }
    Some(())
}

type InUse = Option<((u64, u64, u64), (u64, u64, u64))>;

fn scan(
    ruby: &Ruby,
    wanted: Wanted,
    held: &Held,
    earlier: Option<&Scan>,
) -> Result<(Scan, f64, InUse), Error> {
    if !has_room() {
        errors::need_room_for_errors(ruby)?;
        return Err(not_copied(ruby, &std::io::Error::from_raw_os_error(libc::ENOMEM)));
    }
    let begun = Instant::now();
    let pages = checked(ruby, account::heap_pages())?;
    let before = if wanted.glibc { in_use() } else { None };
    let scan = leaks::begin(wanted, &pages, held, earlier).map_err(|refused| match refused {
        Refused::Hook(status) => errors::from_status(ruby, status),
        Refused::System(error) => not_copied(ruby, &error),
    })?;
    let after = if wanted.glibc { in_use() } else { None };
    drop(pages);
    Ok((scan, begun.elapsed().as_secs_f64() * 1e3, before.zip(after)))
}

fn not_copied(ruby: &Ruby, why: &std::io::Error) -> Error {
    errors::error(
        ruby,
        "LeaksError",
        format!("this process cannot be copied for a search for leaks: {}", copy::refusal(why)),
    )
}

/// Bytes of blocks in use in arenas, mapped blocks and their bytes, as glibc itself counts them.
fn in_use() -> Option<(u64, u64, u64)> {
    type Info = unsafe extern "C" fn() -> [usize; 10];
    // SAFETY: the name stands for a function of this type wherever it exists: a record of ten numbers.
    let info = unsafe { crate::lookup::look_up!(c"mallinfo2", Info) }?;
    // SAFETY: it takes malloc's locks, as malloc does, and only reads.
    let figures = unsafe { info() };
    let [_, _, _, mapped, mapped_bytes, _, _, in_use, _, _] = figures.map(|figure| figure as u64);
    Some((in_use, mapped, mapped_bytes))
}

fn malloc_in_use() -> Option<(u64, u64, u64)> {
    in_use()
}

/// `libfoo.so(symbol+0x8)`; nil where no module is.
fn address_name(address: usize) -> Option<String> {
    symbols::of_address(address)
}

/// The name of the class at an address, if one is there.
fn class_name_at(ruby: &Ruby, address: usize) -> Result<Option<String>, Error> {
    checked(ruby, find::class_name(address))
}
