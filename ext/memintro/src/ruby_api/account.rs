//! An account of resident memory, for Ruby: figures of a frozen copy as text, and what the allocator says.

use magnus::{Error, RArray, RModule, RString, Ruby, function, prelude::*};

use super::heap::checked;
use super::without_gvl::{wait_without_gvl, without_gvl};
use super::{errors, native};
use crate::account::{self, Wanted};
use crate::copy;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("account", function!(take, 3))?;
    native.define_singleton_method("allocator_figures", function!(allocator_figures, 0))?;
    native.define_singleton_method("site_names", function!(site_names, 1))?;
    native.define_singleton_method("malloc_trim", function!(malloc_trim, 0))
}

/// `[text, whether it is whole, milliseconds for which Ruby stood still, what the allocator says, the signal that has ended the
/// copy or 0]`. `walks_heap`: Ruby's own heap too. After so many seconds, the copy is ended.
fn take(ruby: &Ruby, walks_heap: bool, pagemap: bool, seconds: u32) -> Result<RArray, Error> {
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
    let counted = wait_without_gvl(|interrupted| copy.finish(interrupted))?;
    let answer = ruby.ary_new_capa(5);
    let made: RString = ruby.str_from_slice(&counted.text);
    answer.push(made)?;
    answer.push(counted.whole)?;
    answer.push(pause)?;
    answer.push(figures_of(ruby, counted.allocator)?)?;
    answer.push(counted.signal)?;
    Ok(answer)
}

/// `[[id, name], …]` of these call sites, as far as they are still known.
fn site_names(ruby: &Ruby, ids: Vec<u32>) -> Result<RArray, Error> {
    let mut found = Vec::new();
    native::visit_sites(ruby, |record| {
        if ids.contains(&record.id) {
            found.push(*record);
        }
    })?;
    let answer = ruby.ary_new_capa(found.len());
    for record in &found {
        let name = native::site_name(record);
        answer.push((record.id, ruby.str_from_slice(&name)))?;
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
