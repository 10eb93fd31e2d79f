//! Reads all that a snapshot needs of the heap in one walk, step by step. Other threads run between two steps.
//!
//! The walk first lists the pages. Each listed page that still exists is read at one instant, for all parts at once;
//! the whole walk covers the time from the first step to the last. Objects that are made meanwhile count if they are
//! on a page that was not read yet, and objects that are freed on such a page do not count. Pages that are added
//! later are not read.
//!
//! Objects of memintro are left out: instances of its classes, these classes, and the code of its files.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use memintro_analysis::heap::{Heap, Iseqs, Place, Row};

use super::classes::{Label, Labels};
use super::functions::{self, Functions};
use super::greatest;
use super::intern::{AddressHasher, ByAddress, Texts};
use super::iseqs;
use super::outlived::Outlived;
use super::pages::Pages;
use super::walk::{self, Page, Trouble};
use crate::atlas::Object;
use crate::atlas::types::{self, T_IMEMO, T_NONE};

/// The parts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) types: bool,
    pub(crate) classes: bool,
    pub(crate) iseqs: bool,
    pub(crate) internals: bool,
    pub(crate) occupancy: bool,
    /// Count only objects that have outlived a collection among types, classes, iseqs and internals, where Ruby tells it
    /// ([`tells_outlived`]).
    pub(crate) outlived: bool,
    /// Of types and classes only old objects, which have outlived some collections: garbage that was not collected
    /// yet is mostly young.
    pub(crate) old: bool,
}

impl Wanted {
    /// Whether this Ruby has the functions that the parts need.
    pub(crate) fn check(self) -> Result<(), Trouble> {
        if self.classes || self.occupancy {
            functions::classes().map_err(Trouble::Missing)?;
        }
        if self.iseqs && !functions::get().map_err(Trouble::Missing)?.knows_iseqs() {
            return Err(Trouble::NoIseqs);
        }
        functions::get().map(drop).map_err(Trouble::Missing)
    }
}

/// The files of memintro: paths, and folders that end in a slash.
pub(crate) struct Files(pub(crate) Vec<Vec<u8>>);

impl Files {
    fn have(&self, path: &[u8]) -> bool {
        self.0
            .iter()
            .any(|own| if own.ends_with(b"/") { path.starts_with(own) } else { path == own.as_slice() })
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What is known of a text: nothing yet, or whether it names something of memintro.
#[derive(Clone, Copy, Default, PartialEq)]
enum Whose {
    #[default]
    Unknown,
    Theirs,
    Ours,
}

/// By number of text.
#[derive(Default)]
struct Owners(Vec<Whose>);

impl Owners {
    #[inline]
    fn ours(&mut self, text: u32, find: impl FnOnce() -> bool) -> bool {
        let index = text as usize;
        if index >= self.0.len() {
            self.0.resize(index + 64, Whose::Unknown);
        }
        if self.0[index] == Whose::Unknown {
            self.0[index] = if find() { Whose::Ours } else { Whose::Theirs };
        }
        self.0[index] == Whose::Ours
    }
}

/// Whether a class of that name is memintro's, or derives its name from one.
fn is_own_class(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"(anonymous class < ").unwrap_or(name);
    name.strip_prefix(b"Memintro").is_some_and(|rest| matches!(rest, [] | [b')'] | [b':', b':', ..]))
}

/// Whether Ruby tells which objects have outlived a collection.
pub(crate) fn tells_outlived() -> bool {
    Outlived::new().is_some()
}

/// The walk, and its counts so far.
pub(crate) struct HeapSurvey {
    wanted: Wanted,
    own: Files,
    outlived: Option<Outlived>,
    /// Pages that are not read yet; none before they have been listed.
    left: Option<HashSet<usize, BuildHasherDefault<AddressHasher>>>,
    labels: Option<Labels>,
    class_owners: Owners,
    types: [u64; 32],
    /// Sums of visible objects, and of internal ones.
    classes: Vec<[Sum; 2]>,
    internals: [Sum; 16],
    internal_names: [Option<String>; 16],
    texts: Texts,
    text_owners: Owners,
    groups: Vec<(u32, i32, Sum)>,
    found: ByAddress<u64, usize>,
    pages: Pages,
    buffer: Vec<Object>,
}

impl HeapSurvey {
    pub(crate) fn new(wanted: Wanted, own: Files) -> Result<Self, Trouble> {
        wanted.check()?;
        Ok(Self {
            wanted,
            own,
            outlived: if wanted.outlived { Outlived::new() } else { None },
            left: None,
            // Without these functions only the parts that need no class can be read.
            labels: Labels::new().ok(),
            class_owners: Owners::default(),
            types: [0; 32],
            classes: Vec::new(),
            internals: Default::default(),
            internal_names: Default::default(),
            texts: Texts::new(),
            text_owners: Owners::default(),
            groups: Vec::new(),
            found: ByAddress::default(),
            pages: Pages::default(),
            buffer: Vec::new(),
        })
    }

    /// Continues for about that long, and for as long at least as Ruby takes to list its pages, which each step does: else
    /// steps in a great heap would do little else. Returns whether all pages have been read. Ruby finishes a sweep that is
    /// under way first.
    pub(crate) fn step(&mut self, time: Duration) -> Result<bool, Trouble> {
        if self.left.is_none() {
            let mut left = HashSet::default();
            walk::some_pages(|_, page| {
                left.insert(page.start);
                ControlFlow::Continue(())
            })?;
            self.left = Some(left);
            return Ok(false);
        }
        if let Some(labels) = &mut self.labels {
            labels.forget_addresses();
        }
        self.texts.forget_addresses();
        let asked = Instant::now();
        let mut reading = None;
        let mut broken_off = false;
        walk::some_pages(|vm, page| {
            let Some(left) = &mut self.left else { return ControlFlow::Break(()) };
            if left.is_empty() {
                return ControlFlow::Break(());
            }
            if !left.remove(&page.start) {
                return ControlFlow::Continue(());
            }
            let (begun, time) = *reading.get_or_insert_with(|| (Instant::now(), time.max(asked.elapsed())));
            self.see(vm, page);
            broken_off = begun.elapsed() >= time;
            if broken_off { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        // Pages that were not met again have been freed.
        Ok(!broken_off)
    }

    fn see(&mut self, vm: &Functions, page: Page) {
        if self.wanted.occupancy
            && let Some(labels) = &mut self.labels
        {
            let owners = &mut self.class_owners;
            self.pages.see(vm, labels, page, |labels, label| !is_own_label(labels, owners, label));
        }
        if self.wanted.types || self.wanted.classes {
            self.see_objects(vm, page);
        }
        if self.wanted.internals {
            self.see_internals(vm, page);
        }
        if self.wanted.iseqs {
            self.see_iseqs(vm, page);
        }
    }

    fn see_objects(&mut self, vm: &Functions, page: Page) {
        let (old, outlived) = (self.wanted.old, self.outlived);
        let is_wanted =
            |slot: &Object| (!old || slot.is_old()) && outlived.is_none_or(|outlived| outlived.has(*slot));
        for slot in page.slots().filter(|slot| slot.kind() != T_NONE && is_wanted(slot)) {
            if slot.kind() == T_IMEMO
                && let Some(labels) = &mut self.labels
                && let Some(label) = labels.of_plain(vm, slot)
            {
                self.types[T_IMEMO] += 1;
                if self.wanted.classes {
                    self.add_to_class(label, page.stride as u64);
                }
                continue;
            }
            let mut own = self.is_own_iseq(vm, slot);
            if let Some(labels) = &mut self.labels
                && slot.is_object()
                && !own
            {
                let label = labels.of(vm, slot);
                own = is_own_label(labels, &mut self.class_owners, label)
                    || labels.name_of_class(slot).is_some_and(|name| is_own_class(&name));
                if self.wanted.classes && !own {
                    self.add_to_class(label, vm.bytes_of(slot));
                }
            }
            self.types[slot.kind()] += u64::from(!own);
        }
    }

    fn add_to_class(&mut self, label: Label, bytes: u64) {
        let index = label.text as usize;
        if index >= self.classes.len() {
            self.classes.resize(index + 64, [Sum::default(); 2]);
        }
        self.classes[index][usize::from(label.internal)].add(bytes);
    }

    fn see_internals(&mut self, vm: &Functions, page: Page) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outlived = self.outlived;
        let is_wanted = |slot: Object| outlived.is_none_or(|outlived| outlived.has(slot));
        for slot in page.select(&mut buffer, |slot| slot.kind() == T_IMEMO && is_wanted(slot)) {
            if self.is_own_iseq(vm, *slot) {
                continue;
            }
            let kind = slot.imemo_kind();
            self.internals[kind].add(vm.bytes_of(*slot));
            self.internal_names[kind].get_or_insert_with(|| vm.name_of_imemo(kind));
        }
        self.buffer = buffer;
    }

    fn see_iseqs(&mut self, vm: &Functions, page: Page) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outlived = self.outlived;
        iseqs::on_page(page, &mut buffer, |slot| {
            if !outlived.is_none_or(|outlived| outlived.has(slot)) {
                return;
            }
            let path = iseqs::text(vm.iseq_path, slot, &mut self.texts);
            if self.is_own_path(path) {
                return;
            }
            let line = iseqs::line(vm, slot);
            let key = (u64::from(path) << 32) | u64::from(line.cast_unsigned());
            let index = *self.found.entry(key).or_insert_with(|| {
                self.groups.push((path, line, Sum::default()));
                self.groups.len() - 1
            });
            self.groups[index].2.add(vm.bytes_of(slot));
        });
        self.buffer = buffer;
    }

    fn is_own_iseq(&mut self, vm: &Functions, slot: Object) -> bool {
        if !slot.is_iseq() {
            return false;
        }
        let path = iseqs::text(vm.iseq_path, slot, &mut self.texts);
        self.is_own_path(path)
    }

    fn is_own_path(&mut self, path: u32) -> bool {
        self.text_owners.ours(path, || self.own.have(self.texts.get(path)))
    }

    /// All results, sorted. Reads nothing of Ruby's.
    pub(crate) fn heap(self) -> Heap {
        let wanted = self.wanted;
        let names = self.labels.map(Labels::into_texts).unwrap_or_default();
        let occupancy = wanted.occupancy.then(|| self.pages.rows(&names));
        Heap {
            types: wanted.types.then(|| types(&self.types)),
            classes: wanted.classes.then(|| classes(&names, &self.classes)),
            internals: wanted.internals.then(|| internals(self.internal_names, &self.internals)),
            iseqs: wanted.iseqs.then(|| places(self.texts.into_vec(), &self.groups)),
            occupancy,
        }
    }
}

fn is_own_label(labels: &Labels, owners: &mut Owners, label: Label) -> bool {
    owners.ours(label.text, || is_own_class(labels.text(label)))
}

fn types(counts: &[u64; 32]) -> Vec<Row> {
    let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mut rows: Vec<Row> = counted
        .map(|(kind, count)| Row { name: types::name(kind).as_bytes().to_vec(), count: *count, bytes: None })
        .collect();
    // The sort is stable: of equal rows, the one with the lower number comes first.
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

fn classes(names: &[Vec<u8>], sums: &[[Sum; 2]]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, sums) in names.iter().zip(sums) {
        for sum in sums.iter().filter(|sum| sum.count > 0) {
            rows.push(Row { name: name.clone(), count: sum.count, bytes: Some(sum.bytes) });
        }
    }
    sort(&mut rows);
    rows
}

fn internals(names: [Option<String>; 16], sums: &[Sum; 16]) -> Vec<Row> {
    let rows = names.into_iter().zip(sums).filter_map(|(name, sum)| {
        name.map(|name| Row { name: name.into_bytes(), count: sum.count, bytes: Some(sum.bytes) })
    });
    let mut rows = rows.collect();
    sort(&mut rows);
    rows
}

fn sort(rows: &mut Vec<Row>) {
    greatest::keep(rows, None, |row| row.bytes.unwrap_or(0), |a, b| a.name.cmp(&b.name));
}

fn places(texts: Vec<Vec<u8>>, groups: &[(u32, i32, Sum)]) -> Iseqs {
    let mut by_path: ByAddress<u64, Sum> = ByAddress::default();
    let mut locations = Vec::with_capacity(groups.len());
    for (path, line, sum) in groups {
        let whole = by_path.entry(u64::from(*path)).or_default();
        whole.count += sum.count;
        whole.bytes += sum.bytes;
        locations.push(Place { path: *path, line: Some(*line), count: sum.count, bytes: sum.bytes });
    }
    let mut paths: Vec<Place> = by_path
        .into_iter()
        .map(|(path, sum)| Place { path: path as u32, line: None, count: sum.count, bytes: sum.bytes })
        .collect();
    for places in [&mut paths, &mut locations] {
        let name = |place: &Place| texts.get(place.path as usize);
        greatest::keep(
            places,
            None,
            |place| place.bytes,
            |a, b| name(a).cmp(&name(b)).then(a.line.cmp(&b.line)),
        );
    }
    Iseqs { texts, paths, locations }
}
