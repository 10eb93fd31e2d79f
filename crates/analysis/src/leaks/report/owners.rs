//! Which Ruby objects own blocks, by what frozen copies have found: the last one, and one from before garbage was collected.

use std::collections::HashMap;

use super::lines::{Look, NO_SITE};
use super::reading::Facts;
use super::{Owner, Sites};
use crate::json::shown;

/// The kind of a Ruby object (ext/memintro/src/leaks/roots.rs).
pub(super) const OBJECT: u64 = 3;
/// Classes whose objects own most.
const MOST_CLASSES: usize = 40;
/// Classes and call sites that are listed, and bytes that are worth the name of a library.
const MOST: usize = 20;
const WEIGHTY: i64 = 256 << 10;

/// Of a class: objects, blocks, bytes, objects of which Ruby does not know the size, those that were made while memintro
/// tracked, and bytes that were.
type Owned = [i64; 6];

/// Which objects own blocks, by the address of their class, and bytes by the number of the call site.
#[derive(Default)]
struct Ownership {
    classes: Vec<(u64, Owned)>,
    sites: HashMap<u64, HashMap<u32, i64>>,
}

impl Ownership {
    fn of(look: &Look) -> Self {
        let owned =
            |row: &crate::copy_lines::Row| (row.label(0), std::array::from_fn(|at| row.number(at + 1)));
        let classes: Vec<(u64, Owned)> =
            look.lines.all("owner").iter().take(MOST_CLASSES).map(owned).collect();
        let mut sites: HashMap<u64, HashMap<u32, i64>> =
            classes.iter().map(|(class, _)| (*class, HashMap::new())).collect();
        for row in look.lines.all("anchored") {
            let id = row.label(0) as u32;
            for holder in row.from(3).chunks_exact(4).filter(|_| id != NO_SITE) {
                let &[kind, label, bytes, _] = holder else { continue };
                if let Some(of_class) = sites.get_mut(&label).filter(|_| kind == OBJECT) {
                    *of_class.entry(id).or_default() += bytes as i64;
                }
            }
        }
        Self { classes, sites }
    }

    fn owned(&self, class: u64) -> Option<Owned> {
        self.classes.iter().find(|(address, _)| *address == class).map(|(_, owned)| *owned)
    }

    fn bytes(&self, class: u64, site: u32) -> i64 {
        self.sites.get(&class).and_then(|sites| sites.get(&site)).copied().unwrap_or(0)
    }

    /// What call sites have of a class, less what they have `now`.
    fn sites_of(&self, class: u64, now: Option<&Self>) -> Vec<(u32, i64)> {
        let less = |id| now.map_or(0, |now| now.bytes(class, id));
        let sites = self.sites.get(&class).into_iter().flatten().map(|(id, bytes)| (*id, bytes - less(*id)));
        sites.filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// Those with most bytes first.
pub(super) fn of(look: &Look, before: Option<&Look>, facts: &Facts<'_>) -> Vec<Owner> {
    let now = Ownership::of(look);
    let before = before.map(Ownership::of).unwrap_or_default();
    let mut weights: Vec<(u64, Owned, Owned)> = Vec::new();
    for (class, _) in now.classes.iter().chain(&before.classes) {
        if weights.iter().any(|(known, ..)| known == class) {
            continue;
        }
        let owned = now.owned(*class).unwrap_or_default();
        let earlier = before.owned(*class).unwrap_or(owned);
        let gone = std::array::from_fn(|at| {
            let (one, other) = (earlier.get(at).copied(), owned.get(at).copied());
            (one.unwrap_or(0) - other.unwrap_or(0)).max(0)
        });
        weights.push((*class, owned, gone));
    }
    weights.sort_by_key(|(_, owned, garbage)| std::cmp::Reverse(owned[2] + garbage[2]));
    weights.truncate(MOST);
    let owner =
        |(class, owned, garbage): &(u64, Owned, Owned)| owner(*class, owned, garbage, (&now, &before), facts);
    weights.iter().filter_map(owner).collect()
}

fn owner(
    class: u64,
    owned: &Owned,
    garbage: &Owned,
    (now, before): (&Ownership, &Ownership),
    facts: &Facts<'_>,
) -> Option<Owner> {
    let name = (facts.class_name)(class as usize)?;
    let sites = named(now.sites_of(class, None), facts);
    let left = if garbage[2] > 0 { named(before.sites_of(class, Some(now)), facts) } else { Vec::new() };
    let &[objects, blocks, bytes, silent_objects, tracked_objects, tracked_bytes] = owned;
    let first = if garbage[2] > bytes { left.first() } else { sites.first() };
    let library =
        first.filter(|first| first.2 >= WEIGHTY).and_then(|first| library((facts.callers)(first.0)));
    let listed = |rows: Vec<(u32, String, i64)>| -> Sites {
        rows.into_iter().take(MOST).map(|(_, name, bytes)| (name, bytes)).collect()
    };
    Some(Owner {
        class_name: name,
        objects,
        blocks,
        bytes,
        silent_objects,
        tracked_objects,
        tracked_bytes,
        sites: listed(sites),
        garbage_objects: garbage[0],
        garbage_bytes: garbage[2],
        silent_garbage_objects: garbage[3],
        garbage_sites: listed(left),
        library,
    })
}

/// Those with most bytes first.
fn named(sites: Vec<(u32, i64)>, facts: &Facts<'_>) -> Vec<(u32, String, i64)> {
    let ids: Vec<u32> = sites.iter().map(|(id, _)| *id).collect();
    let names = (facts.names)(&ids).unwrap_or_default();
    let row = |(id, bytes)| names.get(&id).map(|name| (id, shown(name), bytes));
    let mut rows: Vec<_> = sites.into_iter().filter_map(row).collect();
    rows.sort_by_key(|(id, _, bytes)| (std::cmp::Reverse(*bytes), *id));
    rows
}

/// Of two libraries that nearly the same allocations came through, the inner one asked for them: each step outwards counts
/// for a tenth less.
const STEP_OUTWARDS: f64 = 0.9;

/// The library that most allocations of a call site came from or through, by samples: of native callers, the frames, the
/// innermost first, and the share.
fn library(callers: Vec<(Vec<String>, f64)>) -> Option<String> {
    let mut weights: Vec<(String, f64)> = Vec::new();
    for (frames, share) in callers {
        let mut names: Vec<&str> = Vec::new();
        for name in frames.iter().filter_map(|frame| library_of(frame)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut weight = share;
        for name in names {
            match weights.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += weight,
                None => weights.push((name.to_owned(), weight)),
            }
            weight *= STEP_OUTWARDS;
        }
    }
    weights.into_iter().rev().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name)
}

/// `libfoo` of `libfoo.so.1(symbol+0x8)`.
fn library_of(frame: &str) -> Option<&str> {
    let file = frame.split('(').next().filter(|file| !file.is_empty())?;
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    let end = file.match_indices(".so").find(|(at, mark)| file.get(at + mark.len()..).is_some_and(is_end));
    Some(end.and_then(|(at, _)| file.get(..at)).unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library_by(callers: &[(&[&str], f64)]) -> Option<String> {
        let owned = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect();
        library(callers.iter().map(|(frames, share)| (owned(frames), *share)).collect())
    }

    const CORE: &str = "libMagickCore-6.Q16.so.6(AcquireQuantumMemory+0x1c)";
    const BINDING: &str = "RMagick2.so(+0x42641)";

    #[test]
    fn names_the_library_that_asks_though_its_caller_asks_for_a_little_more() {
        assert_eq!(
            library_by(&[(&[CORE, BINDING], 0.97), (&[BINDING], 0.03)]).as_deref(),
            Some("libMagickCore-6.Q16")
        );
        assert_eq!(library_by(&[(&[CORE, BINDING], 0.5), (&[BINDING], 0.5)]).as_deref(), Some("RMagick2"));
        assert_eq!(
            library_by(&[(&["libc.so.6(strdup+0x9)"], 0.4), (&[CORE], 0.6)]).as_deref(),
            Some("libMagickCore-6.Q16")
        );
        assert_eq!(library_by(&[]), None);
    }

    #[test]
    fn takes_the_end_off_a_library_s_name() {
        let names =
            ["libz.so.1(deflate+0x1)", "a.so", "libsomething.so_far.so(x)", "(other)"].map(library_of);
        assert_eq!(names, [Some("libz"), Some("a"), Some("libsomething.so_far"), None]);
    }
}
