//! What was found, in words.

use super::anchor::UNTRACKED;
use super::{Group, LITTLE, Leaks, Verdict, standing};
use crate::advice::Advice;
use crate::text::printable;
use crate::text::units::{bytes, count, counted};

/// Other memory comes first if it weighs so many times as much as what leaked.
const HEAVIER: i64 = 4;
const TRACK: (&str, &str) = (
    "Track from now on to learn the lines: Memintro.start, work, and Memintro.leaks again.",
    "Track from now on to learn the lines: memintro leaks PID --track 60.",
);
/// What says more of memory that something holds.
const HELD: (&str, &str) = (
    "Memintro.report(by: :growth) names the lines, Memintro.holders who holds objects, and Memintro.account what the rest of \
     RSS is",
    "memintro report PID --by growth names the lines, memintro holders PID --class NAME who holds objects, and memintro \
     account PID what the rest of RSS is",
);
const KEEP: &str =
    "Look at that line: what it allocates must be freed by the same library, or be kept where it can be.";

/// Sentences, those about what weighs most first. `rubys`: lines for whose leaked blocks Ruby itself asked.
pub(super) fn of(leaks: &Leaks, rubys: &[String], advice: Advice, pid: u32) -> Vec<String> {
    let [leaked, indirect, _] = leaks.lost;
    let parts = standing::parts(leaks, advice, &pid.to_string());
    let is_known = !parts.is_empty();
    let (before, after): (Vec<_>, Vec<_>) = parts
        .into_iter()
        .partition(|(bytes, _)| leaks.is_little() || *bytes > HEAVIER * (leaked.1 + indirect.1));
    let mut sentences: Vec<String> = before.into_iter().flat_map(|part| part.1).collect();
    sentences.extend(found(leaks, rubys));
    sentences.extend(indirectly(leaks));
    sentences.extend(undecided(leaks));
    sentences.extend(doubtful(leaks));
    sentences.extend(after.into_iter().flat_map(|part| part.1));
    sentences.extend(next(leaks, is_known, rubys, advice));
    sentences
}

/// That of these two which goes with the number.
const fn verb<'a>(number: i64, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

fn is_rubys(group: &Group, rubys: &[String]) -> bool {
    group.site.as_ref().is_some_and(|site| rubys.contains(site))
}

fn found(leaks: &Leaks, rubys: &[String]) -> Vec<String> {
    let Some(first) = leaks.of(Verdict::Leaked).next() else {
        return vec![format!(
            "No block that nothing points to, among {} ({}).",
            counted(leaks.scanned.0, "block"),
            bytes(leaks.scanned.1)
        )];
    };
    let (all, size) = leaks.lost[0];
    if leaks.is_little() {
        // All in one sentence: indirectly leaked ones have one of their own.
        return vec![format!(
            "Little is leaked: {} ({}) that nothing points to, as most programs lose at their start.",
            counted(all, "block"),
            bytes(size)
        )];
    }
    let from = match &first.site {
        Some(site) => format!("from {}", printable(site.as_bytes())),
        None => "from a line that is not known".to_owned(),
    };
    let by_ruby =
        if is_rubys(first, rubys) { ", where Ruby itself asked for them, and no C extension" } else { "" };
    let mut sentences = vec![format!("{} that nothing points to, {from}{by_ruby}.", first.blocks())];
    if leaks.of(Verdict::Leaked).nth(1).is_some() {
        let further = all - first.count;
        sentences.push(format!(
            "{} ({}) {} nothing that points to {}.",
            counted(further, "further block"),
            bytes(size - first.bytes),
            verb(further, "has", "have"),
            verb(further, "it", "them")
        ));
    }
    sentences
}

fn indirectly(leaks: &Leaks) -> Option<String> {
    let (count, size) = leaks.lost[1];
    (count > 0)
        .then(|| format!("Only leaked blocks point to {} ({}).", counted(count, "more block"), bytes(size)))
}

fn undecided(leaks: &Leaks) -> Option<String> {
    let (count, size) = leaks.lost[2];
    (count > 0).then(|| {
        format!(
            "Whether {} ({}) {} lost is undecided: something pointed to {} in another copy, or registers of other threads may.",
            counted(count, "block"),
            bytes(size),
            verb(count, "is", "are"),
            verb(count, "it", "them")
        )
    })
}

/// With glibc that memory is known, and searched only where it is in use.
fn doubtful(leaks: &Leaks) -> Option<String> {
    let is_doubtful = |group: &&Group| group.held_by.as_ref().is_some_and(|held| held.starts_with(UNTRACKED));
    let groups = || leaks.of(Verdict::Anchored).filter(is_doubtful);
    let size: i64 = groups().map(|group| group.bytes).sum();
    (leaks.allocator != "glibc" && size >= LITTLE).then(|| {
        format!(
            "Up to {} ({}) may be lost as well: what points to them, at least to some, is {UNTRACKED}, and {} does not tell what \
             of it is free.",
            counted(groups().map(|group| group.count).sum(), "more block"),
            bytes(size),
            leaks.allocator
        )
    })
}

/// What to do next; `is_known`: what weighs most has been said, with its next step.
fn next(leaks: &Leaks, is_known: bool, rubys: &[String], advice: Advice) -> Option<String> {
    let first = leaks.of(Verdict::Leaked).next();
    let (Some(first), false) = (first, leaks.is_little()) else {
        return if is_known { None } else { next_of_little(first, leaks, advice) };
    };
    Some(if leaks.copies == 0 {
        of_core_file(first).to_owned()
    } else if is_rubys(first, rubys) {
        "A method of Ruby that this line calls loses them: a newer Ruby may have that mended. See which calls do it, and avoid \
         those."
            .to_owned()
    } else if first.site.is_some() {
        format!("{KEEP} Work on and ask again, to see whether it grows.")
    } else if leaks.mode == "off" {
        advice.pick(TRACK.0, TRACK.1).to_owned()
    } else {
        "They were allocated before tracking began. Track from the start to learn the line: memintro leaks -- CMD.".to_owned()
    })
}

/// Where what leaked does not say why memory grows.
fn next_of_little(first: Option<&Group>, leaks: &Leaks, advice: Advice) -> Option<String> {
    match first {
        _ if leaks.copies == 0 => {
            first.filter(|group| group.site.is_none()).map(|group| of_core_file(group).to_owned())
        }
        Some(_) if leaks.mode == "off" => {
            let track = advice.pick(TRACK.0, TRACK.1).replacen('T', "t", 1);
            Some(format!("If memory grows: {track}"))
        }
        Some(_) => Some(
            "Work for a while and ask again: only what grows with the work is worth a search.".to_owned(),
        ),
        None => Some(format!(
            "If memory grows all the same, something holds it: {}.",
            advice.pick(HELD.0, HELD.1)
        )),
    }
}

/// That process does not work on.
const fn of_core_file(first: &Group) -> &'static str {
    if first.site.is_some() {
        return KEEP;
    }
    "This core file does not say that line. Track the next process to learn it: memintro leaks -- CMD, or memintro leaks PID \
     --track 60."
}

impl Group {
    /// Such as `50,000 blocks of 1,024 bytes (48.8 MiB)`.
    #[must_use]
    pub fn blocks(&self) -> String {
        if self.verdict == Verdict::FreeButKept {
            return bytes(self.bytes);
        }
        let each = self
            .size
            .map_or_else(String::new, |size| format!(" of {} {}", count(size), verb(size, "byte", "bytes")));
        format!("{}{each} ({})", counted(self.count, "block"), bytes(self.bytes))
    }
}
