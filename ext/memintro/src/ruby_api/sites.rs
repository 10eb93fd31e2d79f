//! `Memintro::Native::Sites`: the call sites at one instant, in Rust's memory, without Ruby objects.

use std::cell::{Ref, RefCell};
use std::collections::HashMap;

use magnus::{Error, RModule, Ruby, Symbol, function, method, prelude::*};
use memintro_abi::{SiteKind, SiteRecord};
use memintro_analysis::figures::Reader;
use memintro_analysis::sites::{Aged, Caller, Callers, Site, Sites as Rows};
use memintro_native::SiteFigures;

use super::blocks;
use super::native::pseudo_name;
use super::objects;
use super::top_sites::{self, Greatest};
use super::without_gvl::without_gvl;
use crate::{callers, symbols};

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Sites", ruby.class_object())?;
    super::know_class::<Sites>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("take", function!(Sites::take, 3))?;
    class.define_method("left_out", method!(|this: &Sites| this.rows().left_out, 0))?;
    class.define_method("live_bytes_left_out", method!(|this: &Sites| this.rows().live_bytes_left_out, 0))?;
    class.define_method("variance_left_out", method!(|this: &Sites| this.rows().variance_left_out, 0))?;
    class.define_method("clear", method!(Sites::clear, 0))
}

/// Sites, greatest first.
#[magnus::wrap(class = "Memintro::Native::Sites", free_immediately)]
pub(super) struct Sites(RefCell<Rows>);

impl Sites {
    /// The sites, or none once they were cleared.
    pub(super) fn rows(&self) -> Ref<'_, Rows> {
        self.0.borrow()
    }

    /// Frees the memory, which otherwise would wait for Ruby's collector.
    fn clear(&self) {
        if let Ok(mut rows) = self.0.try_borrow_mut() {
            *rows = Rows::default();
        }
    }

    /// At most so many sites, those with the greatest figure. With an age, only sites with blocks or objects of that
    /// age, and only these count as live.
    fn take(ruby: &Ruby, most: Option<usize>, by: Symbol, older_than: Option<u32>) -> Result<Self, Error> {
        let by = by.name()?.into_owned();
        let figure = top_sites::figure(ruby, &by)?;
        let most = most.unwrap_or(usize::MAX);
        let sums = older_than.map(|age| blocks::sums(ruby, age)).transpose()?;
        let objects = older_than.map(|age| objects::sums(ruby, age)).transpose()?.unwrap_or_default();
        let mut rows = collect(ruby, figure, if sums.is_some() { usize::MAX } else { most })?;
        let rows = without_gvl(move || {
            match &sums {
                Some(sums) => keep_old(&mut rows.list, sums, &objects, figure),
                None if most == usize::MAX => sort(&mut rows.list, figure),
                None => {}
            }
            rows.list.truncate(most);
            rows
        })?;
        Ok(Self(RefCell::new(rows)))
    }
}

/// At most so many sites, those with the greatest figure, greatest first, without leaving the GVL.
pub(super) fn greatest(ruby: &Ruby, figure: Reader, most: usize) -> Result<Rows, Error> {
    let mut rows = collect(ruby, figure, most)?;
    if most == usize::MAX {
        sort(&mut rows.list, figure);
    }
    Ok(rows)
}

/// The same; in any order if there is no limit. Only the texts must be copied while no other thread can clear them.
fn collect(ruby: &Ruby, figure: Reader, most: usize) -> Result<Rows, Error> {
    let found = Greatest::collect(ruby, figure, most)?;
    // Room for all, because a map that grows runs more code: a report is to touch little of it.
    let mut texts = Texts { paths: HashMap::with_capacity(found.kept.len()), ..Texts::default() };
    let known = callers::Callers::now();
    let mut of_sites: Vec<Callers> = Vec::new();
    let list = found
        .kept
        .iter()
        .map(|record| {
            let callers = known.of(record.id).map(|(figures, named)| {
                of_sites.push(native_callers(figures, &named));
                (of_sites.len() - 1) as u32
            });
            Site { callers, ..texts.site(record) }
        })
        .collect();
    Ok(Rows {
        list,
        texts: texts.texts,
        callers: of_sites,
        left_out: found.left_out,
        live_bytes_left_out: found.live_bytes,
        variance_left_out: found.variance,
    })
}

fn native_callers(figures: &SiteFigures, named: &[callers::Named<'_>]) -> Callers {
    let list = named.iter().map(|one| Caller {
        frames: one.names.iter().map(|name| name.text.clone()).collect(),
        location: callers::location(&one.names),
        samples: one.figures.samples,
        live_samples: one.figures.live_samples,
        share: one.figures.share,
        live_share: one.figures.live_share,
    });
    Callers { samples: figures.samples, live_samples: figures.live_samples, list: list.collect() }
}

/// The sites with blocks or objects of that age, greatest first.
fn keep_old(list: &mut Vec<Site>, sums: &[blocks::Sum], objects: &HashMap<u32, blocks::Sum>, figure: Reader) {
    list.retain_mut(|site| {
        let aged = sums.get(site.record.id as usize).filter(|sum| sum.is_any()).map(blocks::Sum::aged);
        let slots = objects.get(&site.record.id);
        let slots_aged = slots.map(blocks::Sum::aged).unwrap_or_default();
        site.aged = (aged.is_some() || slots.is_some()).then(|| Aged {
            objects: slots_aged.blocks,
            object_bytes: slots_aged.bytes,
            ..aged.unwrap_or_default()
        });
        site.aged.is_some()
    });
    sort(list, figure);
}

/// Greater figures first, then the earlier site.
fn sort(list: &mut [Site], figure: Reader) {
    list.sort_unstable_by(|one, other| {
        let of = |site| figure.of(site).approximate();
        of(other).total_cmp(&of(one)).then(one.record.id.cmp(&other.record.id))
    });
}

/// Each path once, because a file has many lines.
#[derive(Default)]
struct Texts {
    texts: Vec<Vec<u8>>,
    /// By the interner's address and length.
    paths: HashMap<(usize, u32), u32>,
}

impl Texts {
    fn site(&mut self, record: &SiteRecord) -> Site {
        let text = match record.kind {
            SiteKind::RUBY => *self.paths.entry((record.path.addr(), record.path_len)).or_insert_with(|| {
                // SAFETY: the interner keeps the path until a clear or start, which need the GVL that we hold.
                let path = unsafe { std::slice::from_raw_parts(record.path, record.path_len as usize) };
                push(&mut self.texts, path.to_vec())
            }),
            SiteKind::NATIVE => push(&mut self.texts, symbols::name(record).into_bytes()),
            _ => push(&mut self.texts, pseudo_name(record.id).into()),
        };
        Site { record: *record, text, aged: None, callers: None }
    }
}

/// The index of the text that was pushed.
fn push(texts: &mut Vec<Vec<u8>>, text: Vec<u8>) -> u32 {
    texts.push(text);
    (texts.len() - 1) as u32
}
