//! Instruction sequences: their number, size and origin. No wrapper object is made for any.

use super::functions::{self, Functions, OfValue};
use super::greatest;
use super::intern::{ByAddress, Texts};
use crate::atlas::Object;

use super::walk::{self, Page, Trouble};

/// The key by which iseqs are grouped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Path,
    Location,
    Label,
}

/// One iseq. Path and label are numbers of texts.
pub(crate) struct Iseq {
    pub(crate) path: u32,
    pub(crate) label: u32,
    pub(crate) line: i32,
    pub(crate) bytes: u64,
}

/// Iseqs with the same key. The line is 0 if it is not part of the key.
pub(crate) struct Group {
    pub(crate) text: u32,
    pub(crate) line: i32,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// Count and bytes.
pub(crate) fn totals() -> Result<(u64, u64), Trouble> {
    let (mut count, mut bytes) = (0, 0);
    each(|vm, slot| {
        count += 1;
        bytes += vm.bytes_of(slot);
    })?;
    Ok((count, bytes))
}

/// All of them.
pub(crate) fn list() -> Result<(Texts, Vec<Iseq>), Trouble> {
    let (mut texts, mut iseqs) = (Texts::new(), Vec::new());
    each(|vm, slot| {
        iseqs.push(Iseq {
            path: text(vm.iseq_path, slot, &mut texts),
            label: text(vm.iseq_label, slot, &mut texts),
            line: line(vm, slot),
            bytes: vm.bytes_of(slot),
        });
    })?;
    Ok((texts, iseqs))
}

/// The groups of a walk.
pub(crate) struct Groups {
    texts: Texts,
    groups: Vec<Group>,
}

/// Count and bytes of each path, location or label.
pub(crate) fn groups(by: By) -> Result<Groups, Trouble> {
    let mut texts = Texts::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut found: ByAddress<u64, usize> = ByAddress::default();
    each(|vm, slot| {
        let (text, line) = match by {
            By::Path => (text(vm.iseq_path, slot, &mut texts), 0),
            By::Label => (text(vm.iseq_label, slot, &mut texts), 0),
            By::Location => (text(vm.iseq_path, slot, &mut texts), line(vm, slot)),
        };
        let index =
            *found.entry((u64::from(text) << 32) | u64::from(line.cast_unsigned())).or_insert_with(|| {
                groups.push(Group { text, line, count: 0, bytes: 0 });
                groups.len() - 1
            });
        groups[index].count += 1;
        groups[index].bytes += vm.bytes_of(slot);
    })?;
    Ok(Groups { texts, groups })
}

impl Groups {
    /// The groups with the most bytes, and all texts. Reads nothing of Ruby's.
    pub(crate) fn greatest(self, limit: Option<usize>) -> (Vec<Vec<u8>>, Vec<Group>) {
        let (texts, mut groups) = (self.texts.into_vec(), self.groups);
        let name = |group: &Group| texts.get(group.text as usize);
        greatest::keep(
            &mut groups,
            limit,
            |group| group.bytes,
            |a, b| name(a).cmp(&name(b)).then(a.line.cmp(&b.line)),
        );
        (texts, groups)
    }
}

/// Number of iseqs whose memory is prefetched while those before them are read.
const AHEAD: usize = 8;

/// Visits each iseq. Each page is first searched without a branch, then its iseqs are visited. Their bodies are
/// spread over the memory, so the next ones are prefetched.
fn each(mut visit: impl FnMut(&Functions, Object)) -> Result<(), Trouble> {
    if !functions::get().map_err(Trouble::Missing)?.knows_iseqs() {
        return Err(Trouble::NoIseqs);
    }
    let mut buffer = Vec::new();
    walk::each_page(|vm, page| on_page(page, &mut buffer, |slot| visit(vm, slot)))
}

/// Visits the iseqs of one page.
pub(super) fn on_page(page: Page, buffer: &mut Vec<Object>, mut visit: impl FnMut(Object)) {
    let found = page.select(buffer, Object::is_iseq);
    found.iter().take(AHEAD).for_each(|slot| slot.fetch_body());
    for (index, slot) in found.iter().enumerate() {
        if let Some(next) = found.get(index + AHEAD) {
            next.fetch_body();
        }
        visit(*slot);
    }
}

#[inline]
pub(super) fn text(function: Option<OfValue>, slot: Object, texts: &mut Texts) -> u32 {
    match function {
        // SAFETY: a finished iseq; its string is answered, nothing is allocated.
        Some(function) if !slot.is_unfinished_iseq() => texts.of_string(unsafe { function(slot.value()) }),
        _ => Texts::UNKNOWN,
    }
}

#[inline]
pub(super) fn line(vm: &Functions, slot: Object) -> i32 {
    let Some(function) = vm.iseq_line else { return 0 };
    if slot.is_unfinished_iseq() {
        return 0;
    }
    // SAFETY: a finished iseq; the answer is a small Integer, which is no object.
    let line = unsafe { function(slot.value()) } as isize;
    if line & 1 == 1 { i32::try_from(line >> 1).unwrap_or(0) } else { 0 }
}

/// Whether an iseq of this Ruby is what [`Object::is_iseq`] takes for one; `None` if that cannot be checked.
pub(crate) fn are_known() -> Option<bool> {
    functions::get().ok().map(Functions::knows_iseqs)
}
