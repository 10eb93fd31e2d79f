//! What is not leaked but weighs much, in words: what came while memintro tracked and is still there, and garbage that had
//! waited for the collector.

use super::anchor::is_untold;
use super::{Group, Leaks, Owner, Verdict};
use crate::advice::Advice;
use crate::text::printable;
use crate::text::units::{bytes, counted};

/// Less than this is not worth a sentence.
const GREAT: i64 = 1 << 20;
/// Sentences about garbage of which Ruby does not know the size.
const GARBAGE: &str = "Their extension does not tell Ruby their size, so Ruby collects too seldom. Free such an object where it \
                       is no longer needed (with a method such as destroy! or close), run GC.start, or have the extension tell \
                       Ruby (rb_gc_adjust_memory_usage).";

/// Bytes, and sentences about them.
pub(super) type Part = (i64, Vec<String>);

/// The largest first.
pub(super) fn parts(leaks: &Leaks, advice: Advice, pid: &str) -> Vec<Part> {
    let standing = Standing { leaks, advice, pid };
    let garbage =
        leaks.owners.iter().filter(|owner| owner.garbage_bytes >= GREAT && owner.is_silent_garbage());
    let owner = most(garbage, |owner| owner.garbage_bytes);
    let mut parts: Vec<Part> = owner.map(|owner| standing.of_garbage(owner)).into_iter().collect();
    parts.extend(standing.still_there(owner));
    if parts.is_empty() && leaks.is_little() {
        parts.extend(standing.before_tracking());
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.0));
    parts
}

/// Of equal ones, the first.
fn most<'a, T>(items: impl Iterator<Item = &'a T>, weight: impl Fn(&T) -> i64) -> Option<&'a T> {
    items.fold(None, |most: Option<&'a T>, item| match most {
        Some(known) if weight(known) >= weight(item) => most,
        _ => Some(item),
    })
}

fn objects(count: i64, name: &str) -> String {
    format!("{} of class {}", counted(count, "object"), printable(name.as_bytes()))
}

/// That their extension does not tell Ruby.
fn silent(count: i64) -> &'static str {
    if count == 1 {
        "its extension does not tell Ruby its size"
    } else {
        "their extension does not tell Ruby their size"
    }
}

/// The lines that have most of it.
fn asked_for(size: i64, sites: &[(String, i64)], library: Option<&str>) -> String {
    let most = sites.iter().take(2).filter(|(_, bytes)| bytes * 25 >= size);
    let lines: Vec<String> = most.map(|(site, _)| printable(site.as_bytes())).collect();
    if lines.is_empty() {
        return bytes(size);
    }
    let subject =
        library.map_or_else(|| "were asked for".to_owned(), |library| format!("{library} asked for"));
    format!("{} that {subject} at {}", bytes(size), lines.join(" and "))
}

struct Standing<'a> {
    leaks: &'a Leaks,
    advice: Advice,
    pid: &'a str,
}

impl Standing<'_> {
    /// Objects of that class which are there now are rather the garbage that came since then.
    fn of_garbage(&self, owner: &Owner) -> Part {
        let asked = asked_for(owner.garbage_bytes, &owner.garbage_sites, owner.library.as_deref());
        let first = format!(
            "{asked} were garbage until this search had it collected: {}, which nothing held, owned them.",
            objects(owner.garbage_objects, &owner.class_name)
        );
        if owner.bytes < GREAT {
            return (owner.garbage_bytes, vec![first, GARBAGE.to_owned()]);
        }
        let now = format!(
            "{} of that class {} {} now. Who holds them, and how many are garbage since then: {}.",
            counted(owner.objects, "object"),
            if owner.objects == 1 { "owns" } else { "own" },
            bytes(owner.bytes),
            self.advice.holders(&owner.class_name, self.pid)
        );
        (owner.garbage_bytes + owner.bytes, vec![first, GARBAGE.to_owned(), now])
    }

    /// What came while memintro tracked. `but`: an owner of which all has been said.
    fn still_there(&self, but: Option<&Owner>) -> Option<Part> {
        let is_told = |owner: &Owner| but.is_some_and(|but| std::ptr::eq(but, owner));
        let owners = self.leaks.owners.iter().filter(|owner| !is_told(owner) && self.weight(owner) >= GREAT);
        let owner = most(owners, |owner| self.weight(owner));
        let group = self.without_owner();
        match (owner, group) {
            (Some(owner), None) => Some(self.of_owner(owner)),
            (Some(owner), Some(group)) if group.bytes <= self.weight(owner) => Some(self.of_owner(owner)),
            (_, group) => group.map(|group| {
                let site = group.site.clone().unwrap_or_default();
                let sentence = format!(
                    "{} came while it tracked, and are still there; held by {}.",
                    asked_for(group.bytes, &[(site, group.bytes)], None),
                    printable(group.holders().unwrap_or_default().as_bytes())
                );
                (group.bytes, vec![sentence])
            }),
        }
    }

    /// Where nothing came while memintro tracked: what weighs most although Ruby does not know of it.
    fn before_tracking(&self) -> Option<Part> {
        let owners = self.leaks.owners.iter().filter(|owner| owner.is_silent() && owner.bytes >= GREAT);
        let owner = most(owners, |owner| owner.bytes)?;
        let first = format!(
            "{} are owned by {}, and {}; less than {} of it came while it tracked.",
            bytes(owner.bytes),
            objects(owner.objects, &owner.class_name),
            silent(owner.objects),
            bytes(GREAT)
        );
        Some((owner.bytes, [first].into_iter().chain(self.holders(owner)).collect()))
    }

    /// Without tracking, only what Ruby does not know itself is worth a word.
    fn weight(&self, owner: &Owner) -> i64 {
        if self.leaks.mode != "off" {
            return owner.tracked_bytes;
        }
        if owner.is_silent() { owner.bytes } else { 0 }
    }

    fn without_owner(&self) -> Option<&Group> {
        let is_wanted = |group: &&Group| {
            group.site.is_some()
                && group.owner.is_none()
                && group.bytes >= GREAT
                && !group.held_by.as_deref().is_some_and(is_untold)
        };
        most(self.leaks.of(Verdict::Anchored).filter(is_wanted), |group| group.bytes)
    }

    fn of_owner(&self, owner: &Owner) -> Part {
        let weight = self.weight(owner);
        let is_off = self.leaks.mode == "off";
        let count = if is_off { owner.objects } else { owner.tracked_objects.max(1) };
        let size = if owner.is_silent() { format!(", and {}", silent(count)) } else { String::new() };
        let who = objects(count, &owner.class_name);
        let first = if is_off {
            format!("{} are owned by {who}{size}.", bytes(weight))
        } else {
            format!(
                "{} came while it tracked, and are still there: {who} {} them{size}.",
                asked_for(weight, &owner.sites, owner.library.as_deref()),
                if count == 1 { "owns" } else { "own" }
            )
        };
        (weight, [first].into_iter().chain(self.holders(owner)).collect())
    }

    /// The next step. A core file is of a process that has ended.
    fn holders(&self, owner: &Owner) -> Option<String> {
        if self.leaks.copies == 0 {
            return None;
        }
        let unsure = if self.leaks.is_collected == Some(true) {
            ""
        } else {
            ", and how many of them are garbage that waits for the collector"
        };
        Some(format!(
            "Who holds these objects{unsure}: {}.",
            self.advice.holders(&owner.class_name, self.pid)
        ))
    }
}
