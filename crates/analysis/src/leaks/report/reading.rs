//! Makes groups of what frozen copies of the process have found.

use super::anchor::Anchor;
use super::lines::{Look, NO_SITE};
use super::owners::{self, OBJECT};
use super::{Group, Leaks, MOST_ANCHORED, Verdict};
use crate::account::report::Names;
use crate::advice::Advice;
use crate::copy_end;
use crate::copy_lines::Row;
use crate::json::shown;
use crate::text::printable;
use crate::text::units::{bytes, count, counted, hundredths};

/// Instead of a thread's number (ext/memintro/src/leaks/roots.rs).
const CALLER: u64 = 1 << 22;
/// Objects that wait to be finalized, among the types of the VM's own.
const ZOMBIE: u64 = 0x1d;
/// A word that is an address, of no block.
const ADDRESS: u64 = 6;

/// What else is known.
pub struct Facts<'a> {
    /// The allocator.
    pub allocator: &'a str,
    /// `off`, `full` or `sampled`.
    pub mode: &'a str,
    /// What is known to be wrong already.
    pub notes: Vec<String>,
    /// Whether garbage was collected.
    pub is_collected: bool,
    /// Copies that were made in all, and the milliseconds for which Ruby stood still.
    pub copies: i64,
    /// See there.
    pub pause_ms: f64,
    /// The names of call sites by their numbers.
    pub names: &'a dyn Fn(&[u32]) -> Option<Names>,
    /// Which of them Ruby itself asked for.
    pub rubys: &'a dyn Fn(&[u32]) -> Vec<u32>,
    /// Native callers of a call site: their frames and their share.
    pub callers: &'a dyn Fn(u32) -> Vec<(Vec<String>, f64)>,
    /// The name of the class at an address.
    pub class_name: &'a dyn Fn(usize) -> Option<String>,
    /// `libfoo.so(symbol+0x8)` of an address.
    pub address_name: &'a dyn Fn(usize) -> Option<String>,
    /// The process, and for whom advice is.
    pub pid: u32,
    /// See there.
    pub advice: Advice,
}

/// What was found. `before`: a look before garbage was collected.
///
/// # Errors
/// A sentence, if there is no verdict.
pub fn read(look: &Look, before: Option<&Look>, facts: Facts<'_>) -> Result<Leaks, String> {
    check(look, facts.advice)?;
    let reading = Reading::new(look, &facts);
    let leaks = Leaks {
        lost: reading.lost(),
        scanned: (look.sum("scanned", 0), look.sum("scanned", 1)),
        free_bytes: look.has_chunks().then(|| look.lines.free_bytes()),
        allocator: facts.allocator.to_owned(),
        judges_chunks: look.has_chunks(),
        mode: facts.mode.to_owned(),
        copies: facts.copies,
        searched: (look.sum("searched", 0), hundredths(look.sum("searched", 1) as f64 / 1e6)),
        pause_ms: hundredths(facts.pause_ms),
        is_collected: Some(facts.is_collected),
        verdict: Vec::new(),
        notes: reading.notes(),
        owners: owners::of(look, before.filter(|look| look.is_trustworthy()), &facts),
        groups: reading.groups(),
    };
    let rubys = reading.rubys();
    Ok(leaks.judged(&rubys, facts.advice, facts.pid))
}

/// Refuses what is not done, or not trustworthy.
///
/// # Errors
/// A sentence.
fn check(look: &Look, advice: Advice) -> Result<(), String> {
    if look.sum("no_pagemap", 0) > 0 {
        return Err(
            "the kernel does not show which pages are there (/proc/self/pagemap), so memory cannot be searched without taking \
             all of it. A process that was started as another user, or has called prctl(PR_SET_DUMPABLE, 0), may not read \
             that file: start it as its user (setpriv, systemd's User=)"
                .to_owned(),
        );
    }
    if look.is_trustworthy() {
        return Ok(());
    }
    Err(match look.difference() {
        Some(difference) => format!(
            "{difference}: no verdict is given. Ask again; if it stays so, track ({}) and ask again, which judges the blocks \
             that are tracked",
            advice.pick("Memintro.start", "memintro start PID")
        ),
        None => format!(
            "the copy of this process that was to find leaks {} before it had. Give it more time or memory (seconds:, limits), \
             or ask again",
            copy_end::said(look.signal)
        ),
    })
}

impl Look {
    /// Refuses what is not done, or not trustworthy.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, advice: Advice) -> Result<(), String> {
        check(self, advice)
    }
}

struct Reading<'a> {
    look: &'a Look,
    facts: &'a Facts<'a>,
    names: Names,
}

impl<'a> Reading<'a> {
    fn new(look: &'a Look, facts: &'a Facts<'a>) -> Self {
        let groups = look.groups().iter().flat_map(|row| [row.label(1), row.label(7)]);
        let anchored = look.lines.all("anchored").iter().map(|row| row.label(0));
        let mut ids: Vec<u32> =
            groups.chain(anchored).map(|id| id as u32).filter(|id| *id != NO_SITE).collect();
        ids.sort_unstable();
        ids.dedup();
        Self { look, facts, names: (facts.names)(&ids).unwrap_or_default() }
    }

    fn name(&self, id: u64) -> Option<String> {
        let id = id as u32;
        (id != NO_SITE).then(|| self.names.get(&id).map(|name| shown(name))).flatten()
    }

    /// Blocks and bytes of those that leaked, leaked indirectly, or are undecided.
    fn lost(&self) -> [(i64, i64); 3] {
        let rows = self.look.lines.all("verdict");
        [0, 1, 2].map(|number| {
            let row = rows.iter().rev().find(|row| row.label(0) == number);
            row.map_or((0, 0), |row| (row.number(2), row.number(3)))
        })
    }

    fn groups(&self) -> Vec<Group> {
        let words = self.look.lines.all("words");
        let lost = self.look.groups().iter().enumerate();
        let mut groups: Vec<Group> = lost.map(|(at, row)| self.lost_group(row, words.get(at))).collect();
        groups
            .extend(self.look.lines.all("anchored").iter().take(MOST_ANCHORED).map(|row| self.anchored(row)));
        if self.look.has_chunks() {
            let pieces = self.look.sum("arena", 7) + self.look.sum("tcache", 1) + self.look.sum("fast", 0);
            groups.push(Group {
                verdict: Verdict::FreeButKept,
                count: pieces,
                bytes: self.look.lines.free_bytes(),
                ..Group::default()
            });
        }
        groups
    }

    fn lost_group(&self, row: &Row, words: Option<&Row>) -> Group {
        let verdict = match row.label(0) {
            0 => Verdict::Leaked,
            1 => Verdict::IndirectlyLeaked,
            _ => Verdict::Undecided,
        };
        let holder = || {
            let from = self.name(row.label(7)).map_or_else(String::new, |site| format!(" from {site}"));
            format!("a leaked block of {} bytes{from}", count(row.number(8)))
        };
        Group {
            verdict,
            site: self.name(row.label(1)),
            size: Some(row.number(2)),
            count: row.number(3),
            bytes: row.number(4),
            ages: (row.label(1) as u32 != NO_SITE).then(|| (row.number(5), row.number(6))),
            held_by: (verdict == Verdict::IndirectlyLeaked).then(holder),
            first_words: words.map(|row| (self.words(row), hexadecimal(&row.text))),
            ..Group::default()
        }
    }

    /// What kind of word each of the first ones is, never what it holds.
    fn words(&self, row: &Row) -> Vec<String> {
        let pairs = row.from(0).chunks_exact(2).filter(|pair| pair.first() != Some(&0));
        pairs
            .map(|pair| {
                let (kind, value) = (pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0));
                let name = if kind == ADDRESS { (self.facts.address_name)(value as usize) } else { None };
                name.unwrap_or_else(|| word(kind).to_owned())
            })
            .collect()
    }

    /// By call site, those with most bytes, and what holds most of each.
    fn anchored(&self, row: &Row) -> Group {
        let holders: Vec<Holder> = row.from(3).chunks_exact(4).map(Holder::of).collect();
        let first = holders.first().copied().unwrap_or_default();
        let owner = first.class(self.facts);
        let also = holders.get(1).filter(|other| other.bytes > 0);
        Group {
            verdict: Verdict::Anchored,
            site: self.name(row.label(0)),
            count: row.number(1),
            bytes: row.number(2),
            held_by: Some(first.anchor(self.facts).text()),
            held_bytes: Some(first.bytes),
            owner: owner.map(|class| (class, first.roots)),
            also_held: also.map(|other| (other.anchor(self.facts).text(), other.bytes)),
            ..Group::default()
        }
    }

    /// The lines of leaked blocks for which Ruby itself asked.
    fn rubys(&self) -> Vec<String> {
        let leaked = self.look.groups().iter().filter(|row| row.label(0) == 0);
        let mut ids: Vec<u32> = leaked.map(|row| row.label(1) as u32).filter(|id| *id != NO_SITE).collect();
        ids.dedup();
        let rubys = if ids.is_empty() { Vec::new() } else { (self.facts.rubys)(&ids) };
        rubys.into_iter().filter_map(|id| self.name(id.into())).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.facts.notes.clone();
        let kept = self.look.sum("kept_back", 0) + self.look.sum("unreadable", 0);
        if kept > 0 {
            notes.push(format!(
                "{} of memory are kept from copies of the process, or unreadable: a block that only they point to looks leaked",
                bytes(kept)
            ));
        }
        notes.extend(self.note_registers());
        if self.facts.mode == "sampled" {
            notes.push(
                "blocks are tracked in sampled mode: most lines are not known, and all blocks were judged"
                    .to_owned(),
            );
        }
        if !self.look.has_chunks() {
            notes.push(
                "only blocks that are tracked were judged; all its other memory is taken for memory in use, also what it has \
                 free, so a leaked block may be taken for held"
                    .to_owned(),
            );
        }
        let lost = self.look.sum("lost", 0);
        if lost > 0 {
            notes.push(format!("{lost} lines of figures had no room"));
        }
        notes
    }

    /// How many registers of threads outside of Ruby are unknown.
    fn note_registers(&self) -> Option<String> {
        let threads = self.look.sum("registers", 0);
        if threads <= 0 {
            return None;
        }
        let subject =
            if threads > 1_000_000 { "other threads".to_owned() } else { counted(threads, "thread") };
        Some(format!(
            "{subject} ran, or waited outside of Ruby's own code, and may hold blocks in registers, which cannot be read: lost \
             blocks of one line and size are called leaked only if there are more of them than such registers ({})",
            count(self.look.sum("registers", 1))
        ))
    }
}

/// What a word looks like, by the number of its kind.
const fn word(kind: u64) -> &'static str {
    match kind {
        1 => "zero",
        2 => "a number",
        3 => "text",
        4 => "a block's address",
        5 => "an object",
        ADDRESS => "an address",
        _ => "other bytes",
    }
}

/// Of a decimal number. No number in memory points to the block.
fn hexadecimal(decimal: &[u8]) -> String {
    let address = std::str::from_utf8(decimal).ok().and_then(|text| text.parse::<u64>().ok());
    address.map_or_else(String::new, |address| format!("{address:#x}"))
}

/// What holds blocks of a call site, by the numbers in which the frozen copy says it.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    /// A kind of ext/memintro/src/leaks/roots.rs.
    kind: u64,
    /// Of an object its class, of a static its address, of a stack its thread.
    label: u64,
    /// Bytes that it holds.
    bytes: i64,
    /// How many objects or words they are.
    roots: i64,
}

impl Holder {
    fn of(numbers: &[u64]) -> Self {
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        Self { kind: number(0), label: number(1), bytes: number(2) as i64, roots: number(3) as i64 }
    }

    fn class(self, facts: &Facts<'_>) -> Option<String> {
        (self.kind == OBJECT).then(|| (facts.class_name)(self.label as usize)).flatten()
    }

    fn anchor(self, facts: &Facts<'_>) -> Anchor {
        match self.kind {
            1 => {
                let name = (facts.address_name)(self.label as usize);
                Anchor::Static(name.unwrap_or_else(|| "or memory of a thread".to_owned()))
            }
            2 => Anchor::Stack(thread(self.label)),
            OBJECT => {
                let class = self.class(facts);
                Anchor::Objects(self.roots, format!("of class {}", class.as_deref().unwrap_or("(no name)")))
            }
            4 => Anchor::Internal,
            5 => Anchor::Mapped,
            6 => Anchor::Untracked,
            8 => Anchor::Code,
            10 if self.label == ZOMBIE => Anchor::Zombie,
            10 => Anchor::Vm,
            13 => Anchor::Fiber,
            _ => Anchor::Undecided,
        }
    }
}

/// Its number; [`CALLER`]; or where a stack begins of which the thread is not known.
fn thread(number: u64) -> String {
    if number == CALLER {
        return "the calling thread".to_owned();
    }
    if number > CALLER {
        return "a thread".to_owned();
    }
    match std::fs::read(format!("/proc/self/task/{number}/comm")) {
        Ok(name) => {
            format!("thread {number} ({})", printable(name.strip_suffix(b"\n").unwrap_or(&name)))
        }
        Err(_) => format!("thread {number}, which has ended"),
    }
}
