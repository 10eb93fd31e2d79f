//! An account of resident memory, for Ruby: of this process by a frozen copy, of another one by its mappings, and its texts.

use magnus::{Error, RArray, RModule, RString, Ruby, Value, function, prelude::*};
use memintro_analysis::account::report::{self, Account, Counted, Facts, Growth, Names, Site};
use memintro_analysis::advice::Advice;
use memintro_analysis::copy_end::is_crash;
use memintro_analysis::figures;

use super::heap::checked;
use super::ractor_safe::ractor_safe;
use super::without_gvl::{wait_without_gvl, without_gvl};
use super::{at_fork, errors, native, sites, values};
use crate::account::{self, CopyAnswer, Wanted};
use crate::copy;

/// Times that a copy is made again, because another thread was in malloc at its instant.
const TRIES: usize = 3;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("account", function!(take, 4))?;
    native.define_singleton_method("account_lines", function!(lines, 3))?;
    native.define_singleton_method("allocator_figures", function!(allocator_figures, 0))?;
    native.define_singleton_method("site_names", function!(site_names, 1))?;
    native.define_singleton_method("malloc_trim", function!(malloc_trim, 0))?;
    ractor_safe(|| {
        native.define_singleton_method("account_of_mappings", function!(of_mappings, 1))?;
        native.define_singleton_method("account_text", function!(text, 2))?;
        native.define_singleton_method("account_page", function!(page, 2))?;
        native.define_singleton_method("account_growth", function!(growth, 3))?;
        native.define_singleton_method("account_growth_text", function!(growth_text, 1))
    })
}

/// The account as a Hash. `walks_heap`: Ruby's own heap too. After so many seconds, the copy is ended. Advice names
/// commands, or else methods.
fn take(
    ruby: &Ruby,
    walks_heap: bool,
    pagemap: bool,
    seconds: u32,
    names_commands: bool,
) -> Result<Value, Error> {
    let mut tries = 1;
    let (counted, answer, pause_ms) = loop {
        let (answer, pause_ms) = copied(ruby, walks_heap, pagemap, seconds)?;
        let counted = Counted::read(&answer.text);
        if tries == TRIES || !(counted.is_torn(walks_heap, native::is_tracking()) || is_crash(answer.signal))
        {
            break (counted, answer, pause_ms);
        }
        tries += 1;
    };
    let (allocator, own) = answer.allocator;
    let facts = Facts {
        signal: answer.signal,
        pause_ms,
        allocator,
        own: &own,
        walks_heap,
        is_tracking: native::is_tracking(),
        at_fork: at_fork::objects(),
        names: &|ids| names(ruby, ids).ok(),
        top: &|most| top(ruby, most).ok(),
        advice: Advice::of(names_commands),
    };
    let account = counted.account(&facts).map_err(|message| errors::error(ruby, "AccountError", message))?;
    values::to_ruby(ruby, &account.to_value())
}

/// The lines of a copy, for specs.
fn lines(ruby: &Ruby, walks_heap: bool, pagemap: bool, seconds: u32) -> Result<RString, Error> {
    Ok(ruby.str_from_slice(&copied(ruby, walks_heap, pagemap, seconds)?.0.text))
}

/// What a copy has counted, and the milliseconds for which Ruby stood still.
fn copied(ruby: &Ruby, walks_heap: bool, pagemap: bool, seconds: u32) -> Result<(CopyAnswer, f64), Error> {
    let refused = |error: std::io::Error| {
        errors::error(
            ruby,
            "AccountError",
            format!(
                "this process cannot be copied for an account of its memory: {}. Memintro::ProcessMemory reads figures \
                 without a copy",
                copy::refusal(&error)
            ),
        )
    };
    errors::need_room(ruby)?;
    let prepared = without_gvl(|| account::prepare(walks_heap && pagemap))?.map_err(refused)?;
    let begun = std::time::Instant::now();
    let pages = if walks_heap { checked(ruby, account::heap_pages())? } else { Vec::new() };
    let wanted = Wanted { pagemap, seconds: seconds.clamp(1, 600) };
    let mut copy = account::begin(wanted, &pages, prepared).map_err(refused)?;
    let pause = begun.elapsed().as_secs_f64() * 1e3;
    Ok((wait_without_gvl(|interrupted| copy.finish(interrupted))?, pause))
}

/// The account of the text of another process's `smaps`; nil if it has no mappings.
fn of_mappings(ruby: &Ruby, smaps: RString) -> Result<Value, Error> {
    // SAFETY: no Ruby runs until it is read.
    let account = report::of_mappings(unsafe { smaps.as_slice() });
    account.map_or(Ok(ruby.qnil().as_value()), |account| values::to_ruby(ruby, &account.to_value()))
}

fn of_hash(account: Value) -> Result<Account, Error> {
    Ok(Account::of_value(&values::of_ruby(account)?))
}

fn text(account: Value, colour: bool) -> Result<String, Error> {
    Ok(of_hash(account)?.text(colour))
}

/// A page about a process that is called so.
fn page(ruby: &Ruby, account: Value, name: String) -> Result<String, Error> {
    let mut out = Vec::new();
    let written = of_hash(account)?.write_page(&mut out, &name);
    written.map_err(|error| Error::new(ruby.exception_runtime_error(), error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// What there is more of in the later one.
fn growth(ruby: &Ruby, earlier: Value, later: Value, names_commands: bool) -> Result<Value, Error> {
    let growth = Growth::between(&of_hash(earlier)?, &of_hash(later)?, Advice::of(names_commands));
    values::to_ruby(ruby, &growth.to_value())
}

fn growth_text(growth: Value) -> Result<String, Error> {
    Ok(Growth::of_value(&values::of_ruby(growth)?).text())
}

/// Names of these call sites, as far as they are still known.
pub(super) fn names(ruby: &Ruby, ids: &[u32]) -> Result<Names, Error> {
    let mut found = Vec::new();
    native::visit_sites(ruby, |record| {
        if ids.contains(&record.id) {
            found.push(*record);
        }
    })?;
    Ok(found.iter().map(|record| (record.id, native::site_name(record))).collect())
}

/// So many call sites, those with most live bytes.
fn top(ruby: &Ruby, most: usize) -> Result<Vec<Site>, Error> {
    let reader = |name| figures::sortable(name).ok_or_else(|| errors::error(ruby, "Error", name));
    let (bytes, blocks) = (reader("live_bytes")?, reader("live_blocks")?);
    let sites = sites::greatest(ruby, bytes, most)?;
    let site = |site| (sites.name(site), bytes.of(site).whole(), blocks.of(site).whole());
    Ok(sites.list.iter().map(site).collect())
}

/// `[[id, name], …]` of these call sites, as far as they are still known.
fn site_names(ruby: &Ruby, ids: Vec<u32>) -> Result<RArray, Error> {
    let names = names(ruby, &ids)?;
    let answer = ruby.ary_new_capa(names.len());
    for (id, name) in &names {
        answer.push((*id, ruby.str_from_slice(name)))?;
    }
    Ok(answer)
}

/// `[name, [[figure, bytes], …]]`
fn allocator_figures(ruby: &Ruby) -> Result<RArray, Error> {
    figures_of(ruby, without_gvl(account::of_allocator)?)
}

fn figures_of(ruby: &Ruby, (name, figures): account::Statistics) -> Result<RArray, Error> {
    let rows = ruby.ary_new_capa(figures.len());
    for (key, bytes) in figures {
        rows.push((ruby.to_symbol(key), bytes))?;
    }
    let answer = ruby.ary_new_capa(2);
    answer.push(ruby.to_symbol(name))?;
    answer.push(rows)?;
    Ok(answer)
}

/// Has the allocator give free memory back to the kernel; false if it has no function for that.
fn malloc_trim() -> Result<bool, Error> {
    without_gvl(account::give_back)
}
