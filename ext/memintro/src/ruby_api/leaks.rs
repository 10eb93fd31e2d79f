//! Blocks that nothing points to, for Ruby: looks at frozen copies, what they have found, and its texts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use magnus::{Error, RArray, RModule, RString, Ruby, Value, function, prelude::*};
use memintro_analysis::advice::Advice;
use memintro_analysis::leaks::report::{self, Facts, Group, Look, Owner};

use super::heap::checked;
use super::ractor_safe::ractor_safe;
use super::without_gvl::wait_without_gvl;
use super::{account as accounts, errors, values};
use crate::account;
use crate::callers;
use crate::copy::{self, own_memory::has_room};
use crate::heap::find;
use crate::leaks::{self, Held, Refused, Scan, Wanted};
use crate::symbols;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("leaks", function!(take, 4))?;
    native.define_singleton_method("leaks_found", function!(found, 4))?;
    native.define_singleton_method("malloc_in_use", function!(malloc_in_use, 0))?;
    ractor_safe(|| {
        native.define_singleton_method("leaks_state", function!(state, 1))?;
        native.define_singleton_method("leaks_lost_sites", function!(lost_sites, 2))?;
        native.define_singleton_method("leaks_judged", function!(judged, 3))?;
        native.define_singleton_method("leaks_view", function!(view, 1))?;
        native.define_singleton_method("leaks_chosen", function!(chosen, 2))?;
        native.define_singleton_method("leaks_text", function!(text, 1))?;
        native.define_singleton_method("leaks_summary", function!(summary, 2))?;
        native.define_singleton_method("leaks_report", function!(whole_report, 3))?;
        native.define_singleton_method("leaks_page", function!(page, 3))?;
        native.define_singleton_method("leaks_group", function!(group, 1))?;
        native.define_singleton_method("leaks_owner", function!(owner, 1))
    })
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

/// A look, as [`take`] gives it.
fn look(array: RArray) -> Result<Look, Error> {
    type Signed = Option<((i64, i64, i64), (i64, i64, i64))>;
    let text: RString = array.entry(0)?;
    let (is_whole, in_use): (bool, Signed) = (array.entry(1)?, array.entry(4)?);
    let signal: Option<i32> = array.entry(5)?;
    // SAFETY: no Ruby runs until it is read.
    Ok(Look::read(unsafe { text.as_slice() }, is_whole, in_use, signal.unwrap_or(0)))
}

/// `[whether it is trustworthy, in what its sums differ from malloc's or nil, call sites of which another look may decide
/// more]`
fn state(array: RArray) -> Result<(bool, Option<String>, Vec<u32>), Error> {
    let look = look(array)?;
    Ok((look.is_trustworthy(), look.difference(), look.undecided_sites()))
}

fn refused(ruby: &Ruby) -> impl Fn(String) -> Error + use<'_> {
    |message| errors::error(ruby, "LeaksError", message)
}

/// `[[number of the verdict, call site, blocks, bytes], …]` of lost blocks, and of those that are undecided.
fn lost_sites(ruby: &Ruby, array: RArray, names_commands: bool) -> Result<Vec<(u64, u32, i64, i64)>, Error> {
    let look = look(array)?;
    look.check(Advice::of(names_commands)).map_err(refused(ruby))?;
    Ok(look.lost_sites())
}

/// What a look has found, as a Hash. `before`: a look before garbage was collected, or nil. `known`: the allocator, the mode,
/// notes, whether garbage was collected, copies, and milliseconds for which Ruby stood still.
fn found(
    ruby: &Ruby,
    array: RArray,
    before: Option<RArray>,
    known: RArray,
    names_commands: bool,
) -> Result<Value, Error> {
    let (allocator, mode): (magnus::Symbol, magnus::Symbol) = (known.entry(0)?, known.entry(1)?);
    let before = before.map(look).transpose()?;
    let facts = Facts {
        allocator: &allocator.name()?,
        mode: &mode.name()?,
        notes: known.entry(2)?,
        is_collected: known.entry(3)?,
        copies: known.entry(4)?,
        pause_ms: known.entry(5)?,
        names: &|ids| accounts::names(ruby, ids).ok(),
        rubys: &|ids| callers::rubys_sites(ids.to_vec()),
        callers: &callers_of,
        class_name: &|address| checked(ruby, find::class_name(address)).ok().flatten(),
        address_name: &symbols::of_address,
        pid: std::process::id(),
        advice: Advice::of(names_commands),
    };
    let leaks = report::read(&look(array)?, before.as_ref(), facts).map_err(refused(ruby))?;
    values::to_ruby(ruby, &leaks.to_value())
}

/// Frames of native callers, and their shares.
fn callers_of(site: u32) -> Vec<(Vec<String>, f64)> {
    let known = callers::Callers::now();
    let named = known.callers_of(site).map(|(_, named)| named).unwrap_or_default();
    let caller = |one: &callers::Named<'_>| {
        (one.names.iter().map(|name| name.text.clone()).collect(), one.figures.share)
    };
    named.iter().map(caller).collect()
}

fn of_hash(leaks: Value) -> Result<report::Leaks, Error> {
    Ok(report::Leaks::of_value(&values::of_ruby(leaks)?))
}

/// The same with sentences about it. `rubys`: lines for whose leaked blocks Ruby itself asked.
fn judged(ruby: &Ruby, leaks: Value, rubys: Vec<String>, names_commands: bool) -> Result<Value, Error> {
    let leaks = of_hash(leaks)?.judged(&rubys, Advice::of(names_commands), std::process::id());
    values::to_ruby(ruby, &leaks.to_value())
}

/// `[whether little leaked, the verdicts in the order in which they are shown, places of weighty owners]`
fn view(leaks: Value) -> Result<(bool, Vec<&'static str>, Vec<usize>), Error> {
    Ok(of_hash(leaks)?.view())
}

/// Without all but so many groups of each verdict.
fn chosen(ruby: &Ruby, leaks: Value, top: Option<usize>) -> Result<Value, Error> {
    values::to_ruby(ruby, &of_hash(leaks)?.chosen(top).to_value())
}

fn text(leaks: Value) -> Result<String, Error> {
    Ok(of_hash(leaks)?.text())
}

fn summary(leaks: Value, top: Option<usize>) -> Result<String, Error> {
    Ok(of_hash(leaks)?.summary(top))
}

fn whole_report(leaks: Value, top: Option<usize>, colour: bool) -> Result<String, Error> {
    Ok(of_hash(leaks)?.report(top, colour))
}

/// A page about a process that is called so.
fn page(ruby: &Ruby, leaks: Value, name: String, top: Option<usize>) -> Result<String, Error> {
    let mut out = Vec::new();
    let written = of_hash(leaks)?.write_page(&mut out, &name, top);
    written.map_err(|error| Error::new(ruby.exception_runtime_error(), error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// `[one line, its blocks, what holds them]`
fn group(ruby: &Ruby, group: Value) -> Result<(String, String, Option<String>), Error> {
    let group = Group::of_value(&values::of_ruby(group)?);
    let group = group.ok_or_else(|| Error::new(ruby.exception_arg_error(), "this is no group of blocks"))?;
    Ok((group.text(), group.blocks(), group.holders()))
}

/// One line about objects that own blocks.
fn owner(owner: Value) -> Result<String, Error> {
    Ok(Owner::of_value(&values::of_ruby(owner)?).text())
}
