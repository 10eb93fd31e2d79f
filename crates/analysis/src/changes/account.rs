//! What grew of resident memory, by what it is for, in words.

use memintro_abi::{AccountPart, AccountRow};

use super::{Change, Diff};
use crate::account::report::grown;
use crate::advice::Advice;
use crate::text::printable;
use crate::text::units::{bytes, counted};

/// Growth below this gets no sentence: a process that is asked for a snapshot grows by some of it.
const LEAST: f64 = 1_048_576.0;

/// Sentences about the row that grew most, and about memory that was shared before.
pub(super) fn sentences(diff: &Diff, advice: Advice) -> Vec<String> {
    largest(diff, advice).into_iter().chain(unshared(diff)).collect()
}

fn changes<'a>(diff: &'a Diff, key: &str) -> &'a [Change] {
    diff.section(key).map_or(&[], |section| &section.changes)
}

/// Of equal ones, the first.
fn most(changes: &[Change]) -> Option<&Change> {
    changes.iter().rev().max_by(|one, other| one.growth().total_cmp(&other.growth()))
}

fn sum<'a>(changes: impl IntoIterator<Item = &'a Change>) -> f64 {
    changes.into_iter().map(Change::growth).sum()
}

fn row(change: &Change) -> Option<AccountRow> {
    AccountRow::find(std::str::from_utf8(&change.name).ok()?)
}

fn largest(diff: &Diff, advice: Advice) -> Option<String> {
    let change = most(changes(diff, "account")).filter(|change| change.growth() >= LEAST)?;
    let row = row(change)?;
    let step = holders(diff, row, advice);
    Some(format!("{}.", grown(row, change.growth() as i64, step.as_deref(), advice)))
}

/// The next command, where one class has most of what objects grew by: a histogram would name it once more.
fn holders(diff: &Diff, row: AccountRow, advice: Advice) -> Option<String> {
    if !matches!(row, AccountRow::MallocRubyObjects | AccountRow::RubyHeapLive) {
        return None;
    }
    let grown: Vec<&Change> =
        changes(diff, "classes").iter().filter(|change| change.growth() > 0.0).collect();
    let most = grown.iter().rev().max_by(|one, other| one.growth().total_cmp(&other.growth()))?;
    let name = std::str::from_utf8(&most.name).ok().filter(|name| is_class(name))?;
    (most.growth() * 2.0 >= sum(grown.iter().copied())).then(|| advice.holders(name, "PID"))
}

/// Whether code and a shell can write it: not `(hidden T_ARRAY)`.
fn is_class(name: &str) -> bool {
    name.split("::").all(|part| {
        part.starts_with(|letter: char| letter.is_ascii_uppercase())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// After a fork, memory becomes private page by page, and RSS stays as it is.
fn unshared(diff: &Diff) -> Option<String> {
    let own = changes(diff, "account_private");
    let first = most(own)?;
    let growth = sum(own) - sum(changes(diff, "account"));
    (growth >= LEAST).then(|| {
        format!(
            "{} that was shared with other processes is this process's own now, most of it in {} ({}){}: \
             docs/copy_on_write.md.",
            bytes(growth as i64),
            printable(&first.name),
            first.growth_text(),
            cause(diff, first).unwrap_or_default()
        )
    })
}

fn cause(diff: &Diff, first: &Change) -> Option<String> {
    row(first).filter(|row| row.part() == AccountPart::RubyHeap)?;
    let aged = changes(diff, "gc").iter().find(|change| change.name == b"old_objects")?.growth() as i64;
    (aged > 0).then(|| {
        format!("; {} became old meanwhile, which is written to the slot of each", counted(aged, "object"))
    })
}
