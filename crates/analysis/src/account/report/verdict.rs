//! What the rows mean, in words. docs/account.md explains each threshold.

use memintro_abi::AccountRow;

use super::{Account, Row, copy_on_write};
use crate::advice::Advice;
use crate::text::printable;
use crate::text::units::{bytes, count, counted, share};
use crate::value::Value;

/// Less than this is never worth a sentence.
const LEAST_BYTES: i64 = 8 << 20;
/// More arenas than this are many.
const MANY_ARENAS: i64 = 4;
/// What a library that maps memory itself says of it.
const LIBRARY: &str = "the statistics of the library that maps it";

/// The percentage of RSS from which a row deserves a sentence.
const fn threshold(row: AccountRow) -> i64 {
    match row {
        AccountRow::MallocNative
        | AccountRow::Anonymous
        | AccountRow::MallocRubyObjects
        | AccountRow::RubyHeapLive => 30,
        AccountRow::MallocFree
        | AccountRow::RubyHeapFree
        | AccountRow::MallocIseqs
        | AccountRow::MallocInternal => 20,
        AccountRow::MappedFiles => 40,
        AccountRow::ThreadStacks | AccountRow::Memintro => 15,
        AccountRow::Unattributed => 5,
    }
}

/// What says more of a row that grows: methods, and commands.
const fn next(row: AccountRow) -> (&'static str, &'static str) {
    match row {
        AccountRow::RubyHeapLive | AccountRow::MallocRubyObjects => {
            ("Memintro.histogram", "memintro histogram PID")
        }
        AccountRow::RubyHeapFree => ("Memintro.trim(compact: true)", "memintro trim PID --compact"),
        AccountRow::MallocIseqs => ("Memintro.top_iseqs", "memintro iseqs PID"),
        AccountRow::MallocInternal => ("Memintro.internals", "memintro diff PID"),
        AccountRow::MallocNative => ("Memintro.leaks", "memintro leaks PID"),
        AccountRow::MallocFree => (
            "Memintro.account counts its arenas, Memintro.trim gives back what it can",
            "memintro account PID counts its arenas, memintro trim PID gives back what it can",
        ),
        AccountRow::ThreadStacks => (
            "Memintro.holders(\"Fiber\"), or \"Thread\"",
            "memintro holders PID --class Fiber, or --class Thread",
        ),
        AccountRow::MappedFiles => {
            ("the details of this row name the files", "memintro account PID --json names the files")
        }
        AccountRow::Anonymous => (LIBRARY, LIBRARY),
        AccountRow::Memintro => ("Memintro.doctor", "memintro doctor PID"),
        AccountRow::Unattributed => ("the notes of Memintro.account", "the notes of memintro account PID"),
    }
}

/// Sentences, that of the largest row first.
pub(super) fn of(account: &Account, advice: Advice) -> Vec<String> {
    let is_great =
        |row: &&Row| row.bytes >= LEAST_BYTES && row.bytes * 100 >= threshold(row.row) * account.rss;
    let mut rows: Vec<&Row> = account.rows.iter().filter(is_great).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let mut found: Vec<String> = rows.iter().map(|row| Sentence { row, advice }.text(account.rss)).collect();
    // Where the parent did not say what it had at the fork, all of it may have been made since.
    if let Some(shared) = copy_on_write::sentence(account) {
        let place = if copy_on_write::is_known(account) { 0 } else { found.len() };
        found.insert(place, shared);
    }
    if found.is_empty() {
        found.extend(nothing(account));
    }
    found
}

fn nothing(account: &Account) -> Option<String> {
    // Of equal rows, the first.
    let row = account.rows.iter().rev().max_by_key(|row| row.bytes)?;
    Some(format!(
        "Nothing stands out in {}: the largest part, {}, is {}.",
        bytes(account.rss),
        share(row.bytes, account.rss),
        row.row.heading()
    ))
}

/// What has grown most, and what says more: `step`, or what the row itself suggests.
pub(crate) fn grown(row: AccountRow, growth: i64, step: Option<&str>, advice: Advice) -> String {
    let (methods, commands) = next(row);
    format!(
        "{} has grown most, by {}: {}. Next: {}",
        row.name(),
        bytes(growth),
        row.heading(),
        step.unwrap_or_else(|| advice.pick(methods, commands))
    )
}

struct Sentence<'a> {
    row: &'a Row,
    advice: Advice,
}

impl Sentence<'_> {
    fn text(&self, rss: i64) -> String {
        let part = format!("{} of {} is ", share(self.row.bytes, rss), bytes(rss));
        if self.row.row == AccountRow::ThreadStacks {
            return part + &self.stacks();
        }
        format!("{part}{}: {}", self.row.row.heading(), self.advice())
    }

    fn detail(&self, name: &str) -> &Value {
        self.row.details.get(name)
    }

    fn advice(&self) -> String {
        let pick = |methods, commands| self.advice.pick(methods, commands);
        match self.row.row {
            AccountRow::MallocFree => self.fragmentation(),
            AccountRow::RubyHeapFree => format!(
                "few objects survive on many pages. {} may help.",
                pick(
                    "Memintro.occupancy names their classes; Memintro.trim(compact: true)",
                    "`memintro trim PID --compact`"
                )
            ),
            AccountRow::MallocNative => self.native(),
            AccountRow::Anonymous => {
                "a native library or a JIT compiler has mapped it. Look at its own statistics.".to_owned()
            }
            AccountRow::MappedFiles => format!(
                "{}The kernel takes unchanged pages back when it needs memory.",
                self.largest("files", "most of ")
            ),
            AccountRow::MallocIseqs => format!(
                "the program's own code and that of its gems; where it grows, methods or blocks are made at run time. {} \
                 names the lines.",
                pick("Memintro.top_iseqs(by: :location)", "`memintro iseqs PID --by location`")
            ),
            AccountRow::MallocInternal => format!(
                "{} lists their kinds.",
                pick("Memintro.internals", "`memintro snapshot PID --parts internals`")
            ),
            AccountRow::MallocRubyObjects => {
                self.largest("types", "most by ") + &self.classes("Memintro.histogram")
            }
            AccountRow::RubyHeapLive => self.classes("Memintro.histogram(by: :count)"),
            AccountRow::Memintro => "its tables. Sampled mode takes less.".to_owned(),
            AccountRow::ThreadStacks | AccountRow::Unattributed => {
                "another library's memory manager, or damage; see the notes.".to_owned()
            }
        }
    }

    fn classes(&self, method: &str) -> String {
        format!("{} names the classes.", self.advice.pick(method, "`memintro histogram PID`"))
    }

    fn fragmentation(&self) -> String {
        let trim = self.advice.pick("Memintro.trim", "`memintro trim PID`");
        if self.detail("allocator").text() != Some("glibc") {
            return format!("fragmentation. {trim} gives back what it can.");
        }
        let arenas = self.detail("arenas").or_zero();
        let many = if arenas > MANY_ARENAS {
            format!("{arenas} arenas; MALLOC_ARENA_MAX=2 or jemalloc helps")
        } else {
            "Jemalloc may help".to_owned()
        };
        let back = bytes(self.detail("trimmable_bytes").or_zero());
        format!("fragmentation. {many}; {trim} gives back about {back}.")
    }

    fn held_by(&self, class: &str) -> String {
        let holders = self.advice.holders(class, "PID");
        match self.advice {
            Advice::Methods => format!("{holders} says what holds them"),
            Advice::Commands => format!("`{holders}` says what holds them"),
        }
    }

    /// Stacks of threads and those of fibers have different causes.
    fn stacks(&self) -> String {
        let (threads, fibers) = (self.detail("threads"), self.detail("fibers"));
        if fibers.get("bytes").or_zero() > threads.get("bytes").or_zero() {
            return self.of_fibers(fibers, threads);
        }
        format!(
            "stacks of {}: use fewer threads, or end them. {}.",
            counted(threads.get("count").or_zero(), "thread"),
            self.held_by("Thread")
        )
    }

    fn of_fibers(&self, fibers: &Value, threads: &Value) -> String {
        let (known, of_enumerators) = (fibers.get("live").whole(), fibers.get("of_enumerators").or_zero());
        let live = known.unwrap_or(0);
        let all = fibers.get("count").or_zero();
        if known.is_some() && live * 2 < all {
            return format!(
                "{} stacks that Ruby keeps for fibers, of which there are {} now: so many were there at once. Ruby gives \
                 them back when a whole group is unused.",
                count(all),
                count(live)
            );
        }
        let rest = if threads.get("count").or_zero() > 0 {
            format!(" ({} more is of threads)", bytes(threads.get("bytes").or_zero()))
        } else {
            String::new()
        };
        let holders = if of_enumerators * 2 > live { "Enumerator" } else { "Fiber" };
        format!(
            "stacks of {}, not of threads{rest}: {} {}.",
            counted(known.unwrap_or(all), "fiber"),
            cause(live, of_enumerators),
            self.held_by(holders)
        )
    }

    fn native(&self) -> String {
        let reached = self.detail("reached");
        if reached.get("bytes").or_zero() * 2 > self.row.bytes {
            return self.of_objects(reached);
        }
        let is_unknown = *self.detail("free_told_apart") == Value::Bool(false);
        let (free, told) = if is_unknown {
            let trim = self.advice.pick("Memintro.trim", "`memintro trim PID`");
            (
                "free memory that the allocator does not tell apart, ",
                format!(" {trim}, and another account, tell the first from the others."),
            )
        } else {
            ("", String::new())
        };
        let lines = self.line().unwrap_or_else(|| {
            let names = self.advice.pick(
                " Memintro.start, work, and Memintro.top name the lines that ask for it; Memintro.leaks judges each block.",
                " `memintro start PID`, work, and `memintro top PID` name the lines that ask for it; `memintro leaks PID` \
                 judges each block.",
            );
            names.to_owned()
        });
        format!("{free}a leak in C code, or a library's cache.{told}{}{lines}", some_of_objects(reached))
    }

    /// Where objects lead to most of it, they own it, and their extension tells Ruby no size.
    fn of_objects(&self, reached: &Value) -> String {
        let largest = reached.get("classes").items().first().unwrap_or(&Value::Null);
        let name = largest.get("name").text().unwrap_or_default();
        format!(
            "{} lead to {} of it, and their C extension tells Ruby no size, so that the collector does not hurry: most from \
             {} {} ({}). {}, and {} which blocks are leaked.{}",
            counted(reached.get("objects").or_zero(), "object"),
            bytes(reached.get("bytes").or_zero()),
            count(largest.get("objects").or_zero()),
            printable(name.as_bytes()),
            bytes(largest.get("bytes").or_zero()),
            self.held_by(name),
            self.advice.pick("Memintro.leaks", "`memintro leaks PID`"),
            self.line().unwrap_or_default()
        )
    }

    fn line(&self) -> Option<String> {
        let largest = self.detail("call_sites").items().first()?;
        let of = if self.detail("call_sites_of").text() == Some("all rows") { " of all rows" } else { "" };
        Some(format!(
            " The largest tracked call site{of} is {} ({} live).",
            printable(largest.get("name").text().unwrap_or_default().as_bytes()),
            bytes(largest.get("live_bytes").or_zero())
        ))
    }

    fn largest(&self, list: &str, of: &str) -> String {
        let Some(largest) = self.detail(list).items().first() else { return String::new() };
        let name = printable(largest.get("name").text().unwrap_or_default().as_bytes());
        format!("{of}{name} ({}). ", bytes(largest.get("bytes").or_zero()))
    }
}

fn cause(live: i64, of_enumerators: i64) -> String {
    if of_enumerators * 2 <= live {
        return "each keeps its stack until it has ended or is collected.".to_owned();
    }
    let each =
        if of_enumerators >= live { "each".to_owned() } else { format!("each of {}", count(of_enumerators)) };
    format!(
        "{each} runs an Enumerator whose `next` was called, and keeps its stack until the enumerator is finished or collected. \
         Use `first` or `lazy`, or drop it."
    )
}

fn some_of_objects(reached: &Value) -> String {
    let Some(largest) = reached.get("classes").items().first() else { return String::new() };
    let of_it = reached.get("bytes").or_zero();
    if of_it < LEAST_BYTES / 8 {
        return String::new();
    }
    format!(
        " {} whose C extension tells Ruby no size lead to {} of it, most from {}.",
        counted(reached.get("objects").or_zero(), "object"),
        bytes(of_it),
        printable(largest.get("name").text().unwrap_or_default().as_bytes())
    )
}
