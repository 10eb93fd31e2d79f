//! Makes rows of the figures of a frozen copy of this process.

use std::collections::HashMap;

use memintro_abi::{ALLOCATORS, AccountRow, Needs};

use super::{Account, Row, verdict};
use crate::advice::Advice;
use crate::copy_end;
use crate::copy_lines::{self, CopyLines, Shape, named, numbers};
use crate::text::units::{bytes, hundredths};

/// What follows each word of the copy's lines that only this one writes.
const SHAPES: &[(&str, Shape)] = &[
    ("own_pages", numbers(5)),
    ("own_code", numbers(3)),
    ("fibers", numbers(2)),
    ("reached_all", numbers(3)),
    ("reached", named(3)),
    ("rss", numbers(1)),
    ("pagemap", numbers(1)),
    ("zero", numbers(1)),
    ("own", numbers(1)),
    ("file", named(2)),
    ("bss", named(1)),
    ("other", numbers(1)),
    ("code", numbers(1)),
    ("heap_live", numbers(1)),
    ("heap_free", numbers(1)),
    ("heap_empty", numbers(2)),
    ("heap_pages", numbers(1)),
    ("stack", named(2)),
    ("bin", numbers(3)),
    ("tcache_bin", numbers(3)),
    ("fast_bin", numbers(3)),
    ("counted", numbers(2)),
    ("anonymous", numbers(1)),
    ("type", named(3)),
    ("imemo", named(3)),
    ("searched", numbers(1)),
    ("site", numbers(4)),
];
/// Between the figures of all pages and those of shared pages alone.
const AGAIN: &[u8] = b"\nagain 1\n";
/// The sum of the stages that a copy has come to, without and with call sites.
const STAGES_WITHOUT_SITES: i64 = 3;
const STAGES: i64 = 7;
/// Places of numbers in a line of a type.
pub(super) const SAID: usize = 1;
pub(super) const FOUND: usize = 2;

/// What a copy has counted: of all pages, and of shared ones where that was counted.
#[derive(Clone, Debug)]
pub struct Counted {
    all: CopyLines,
    shared: Option<CopyLines>,
}

/// A call site: its name, live bytes and live blocks.
pub type Site = (Vec<u8>, i64, i64);

/// Names of call sites by their numbers.
pub type Names = HashMap<u32, Vec<u8>>;

/// What else is known.
pub struct Facts<'a> {
    /// The signal that ended the copy, or 0.
    pub signal: i32,
    /// Milliseconds for which Ruby stood still.
    pub pause_ms: f64,
    /// The allocator, and what it says of itself.
    pub allocator: &'a str,
    /// See there.
    pub own: &'a [(&'static str, u64)],
    /// Whether Ruby's heap was asked for.
    pub walks_heap: bool,
    /// Whether blocks are tracked.
    pub is_tracking: bool,
    /// Live and old objects when this process was forked, where its parent listened.
    pub at_fork: Option<(usize, usize)>,
    /// The names of call sites by their numbers.
    pub names: &'a dyn Fn(&[u32]) -> Option<Names>,
    /// So many call sites of all blocks, those with most live bytes.
    pub top: &'a dyn Fn(usize) -> Option<Vec<Site>>,
    /// For whom advice is.
    pub advice: Advice,
}

impl Counted {
    /// Reads the lines of a copy; those of one that could not begin are empty.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let cut = text.windows(AGAIN.len()).position(|part| part == AGAIN);
        let (all, shared) =
            cut.map_or((text, None), |at| (text.get(..at).unwrap_or_default(), text.get(at + AGAIN.len()..)));
        let read = |text| CopyLines::read(text, SHAPES);
        Self { all: read(all), shared: shared.map(read) }
    }

    /// Whether another thread stood in the way: in malloc, or recording what it does there.
    #[must_use]
    pub fn is_torn(&self, walks_heap: bool, is_tracking: bool) -> bool {
        let all = &self.all;
        (all.sum("busy") != 0 && !all.all("broken").is_empty())
            || (walks_heap && is_tracking && all.sum("stage") == STAGES_WITHOUT_SITES)
    }

    /// The account.
    ///
    /// # Errors
    /// A sentence, if the copy had counted nothing.
    pub fn account(&self, facts: &Facts<'_>) -> Result<Account, String> {
        if self.all.sum("stage") <= 0 {
            return Err(format!(
                "the copy of this process that was to count its memory {} before it had counted. ProcessMemory reads \
                 figures without a copy",
                copy_end::said(facts.signal)
            ));
        }
        let mut reading = Reading::new(&self.all, facts, facts.own);
        let amounts = reading.amounts();
        let amounts = reading.balanced(amounts);
        let shared = self.shared.as_ref().map(|lines| Reading::of_shared(lines, facts)).unwrap_or_default();
        let own_pages = self.shared.as_ref().map(super::details::own_pages).unwrap_or_default();
        let site_names = reading.site_names();
        let row = |&row: &AccountRow| {
            let bytes = amounts.get(row);
            Row {
                row,
                bytes,
                shared_bytes: shared.get(&row.name()).map(|shared| (*shared).min(bytes).max(0)),
                basis: reading.basis(row).to_owned(),
                details: reading.details(row, &own_pages, site_names.as_ref()),
            }
        };
        let mut account = Account {
            rss: self.all.sum("rss"),
            allocator: facts.allocator.to_owned(),
            pause_ms: hundredths(facts.pause_ms),
            notes: reading.notes(),
            rows: AccountRow::ALL.iter().map(row).collect(),
            verdict: Vec::new(),
        };
        account.verdict.extend(reading.unfinished(self.shared.is_some()));
        account.verdict.extend(verdict::of(&account, facts.advice));
        Ok(account)
    }
}

/// Bytes of each row.
#[derive(Clone, Debug, Default)]
pub(super) struct Amounts([i64; AccountRow::ALL.len()]);

impl Amounts {
    fn get(&self, row: AccountRow) -> i64 {
        self.0.get(row as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, row: AccountRow, bytes: i64) {
        if let Some(place) = self.0.get_mut(row as usize) {
            *place = bytes;
        }
    }
}

/// The lines of one list, and what malloc has of them.
pub(super) struct Reading<'a> {
    pub(super) lines: &'a CopyLines,
    pub(super) facts: &'a Facts<'a>,
    /// What the allocator says, of all pages.
    own: &'a [(&'static str, u64)],
    /// Resident bytes of malloc, in use and free; bytes in use, resident or not; and what else is anonymous.
    pub(super) used: i64,
    free: i64,
    used_size: i64,
    anonymous: i64,
    /// What is resident of bytes that objects own, where only Ruby says what they are.
    pub(super) share: f64,
    pub(super) own_files: i64,
    pub(super) own_code: i64,
}

impl<'a> Reading<'a> {
    fn new(lines: &'a CopyLines, facts: &'a Facts<'a>, own: &'a [(&'static str, u64)]) -> Self {
        let sum = |word, place| lines.sum_at(word, place);
        let mut reading = Self {
            lines,
            facts,
            own,
            used: (sum("arena", 2) + sum("mmapped", 2) - lines.cached_bytes()).max(0),
            free: lines.free_bytes(),
            used_size: sum("arena", 5) + sum("mmapped", 1) - sum("tcache", 3) - sum("fast", 2),
            anonymous: sum("anonymous", 0) + sum("other", 0),
            share: 0.0,
            own_files: 0,
            own_code: 0,
        };
        if !reading.is_glibc() {
            reading.add_allocator();
        }
        reading.own_files = reading.files().filter(|row| is_own(&row.text)).map(|row| row.number(0)).sum();
        reading
    }

    /// Bytes of each row whose shared pages are known, by its name, if the copy came to its end.
    fn of_shared(lines: &'a CopyLines, facts: &'a Facts<'a>) -> HashMap<&'static str, i64> {
        if lines.sum("stage") < STAGES_WITHOUT_SITES {
            return HashMap::new();
        }
        let mut reading = Self::new(lines, facts, &[]);
        let amounts = reading.amounts();
        let amounts = reading.balanced(amounts);
        // Which pages are another allocator's is not known.
        let is_known = |row: &AccountRow| {
            let is_rest = matches!(row, AccountRow::Memintro | AccountRow::Unattributed);
            reading.is_glibc() || (matches!(row.needs(), Needs::Pages | Needs::Mappings) && !is_rest)
        };
        let known = AccountRow::ALL.iter().copied().filter(is_known);
        known.map(|row| (row.name(), amounts.get(row))).collect()
    }

    pub(super) fn sum(&self, word: &str) -> i64 {
        self.lines.sum(word)
    }

    pub(super) fn is_glibc(&self) -> bool {
        self.facts.allocator == "glibc"
    }

    pub(super) fn said(&self, figure: &str) -> Option<i64> {
        let found = self.own.iter().find(|(name, _)| *name == figure);
        found.map(|(_, bytes)| i64::try_from(*bytes).unwrap_or(i64::MAX))
    }

    /// Only sums of another allocator are known, and not which pages are its own.
    fn add_allocator(&mut self) {
        let known = ALLOCATORS.iter().find(|allocator| allocator.name == self.facts.allocator);
        let Some(held) = known.map(|allocator| allocator.held) else { return };
        if held.first().is_none_or(|(figure, _)| self.said(figure).is_none()) {
            return;
        }
        let size: i64 =
            held.iter().map(|(figure, factor)| self.said(figure).unwrap_or(0) * i64::from(*factor)).sum();
        let pool = size.min(self.sum("anonymous"));
        // mimalloc tells of the heap of the thread that asks, and of no other one.
        let free_of_thread =
            self.said("thread_committed").unwrap_or(0) - self.said("thread_allocated").unwrap_or(0);
        let allocated = self.said("allocated").unwrap_or((pool - free_of_thread.max(0)).max(0));
        let in_use = allocated.min(pool);
        self.used += in_use;
        self.used_size += allocated;
        self.free += pool - in_use;
        self.anonymous -= pool;
    }

    /// Whether blocks of objects were looked for by pointers. Only where malloc's chunks are known.
    pub(super) fn is_searched(&self) -> bool {
        self.sum("searched") > 0 && self.sum("glibc") > 0 && self.is_glibc()
    }

    /// Whether the copy has told the call sites of each row.
    pub(super) fn is_listed(&self) -> bool {
        self.is_searched() && self.sum("stage") >= STAGES
    }

    pub(super) fn is_inside_known(&self) -> bool {
        if self.is_glibc() { self.sum("glibc") > 0 } else { self.said("allocated").is_some() }
    }

    /// Mapped files, with what follows their data.
    pub(super) fn files(&self) -> impl Iterator<Item = &'a copy_lines::Row> + use<'a> {
        self.lines.all("file").iter().chain(self.lines.all("bss"))
    }

    /// What Ruby's objects own, of what is resident: the blocks that were found, or else what Ruby says.
    fn owned(&mut self) -> [i64; 3] {
        let is_iseq = |row: &&copy_lines::Row| matches!(row.text.as_slice(), b"imemo_iseq" | b"iseq");
        let is_internal = |row: &&copy_lines::Row| row.text == b"T_ICLASS";
        let (types, imemos) = (self.lines.all("type"), self.lines.all("imemo"));
        let sums = |place: usize| {
            let sum = |rows: &mut dyn Iterator<Item = &copy_lines::Row>| {
                rows.fold(0_i64, |sum, row| sum.saturating_add(row.number(place)))
            };
            [
                sum(&mut types.iter().filter(|row| !is_internal(row))),
                sum(&mut imemos.iter().filter(is_iseq)),
                sum(&mut imemos.iter().filter(|row| !is_iseq(row)).chain(types.iter().filter(is_internal))),
            ]
        };
        if self.is_searched() {
            return sums(FOUND);
        }
        let said = sums(SAID);
        let all = said.iter().sum::<i64>().max(1);
        // Not all pages of all blocks are resident; and what Ruby counts may be more than malloc has.
        let resident =
            if self.used_size > 0 { (self.used as f64 / self.used_size as f64).min(1.0) } else { 0.0 };
        self.share = resident.min(self.used as f64 / all as f64);
        said.map(|bytes| self.part(bytes))
    }

    /// What is resident of bytes that Ruby says.
    pub(super) fn part(&self, bytes: i64) -> i64 {
        (bytes as f64 * self.share).floor() as i64
    }

    fn amounts(&mut self) -> Amounts {
        let [objects, iseqs, internal] = self.owned();
        // Compiled code of memintro's own files, which counts as memintro's.
        let code = |place| self.lines.sum_at("own_code", place);
        self.own_code = if self.is_searched() { code(FOUND) } else { self.part(code(SAID)) };
        let sum = |word| self.lines.sum(word);
        let mut amounts = Amounts::default();
        for (row, bytes) in [
            (AccountRow::RubyHeapLive, sum("heap_live")),
            (AccountRow::RubyHeapFree, sum("heap_free") + self.lines.sum_at("heap_empty", 1)),
            (AccountRow::MallocRubyObjects, objects),
            (AccountRow::MallocIseqs, iseqs - self.own_code),
            (AccountRow::MallocInternal, internal),
            (AccountRow::MallocNative, self.used - (objects + iseqs + internal)),
            (AccountRow::MallocFree, self.free),
            (AccountRow::ThreadStacks, self.lines.sum_at("stack", 1)),
            (AccountRow::MappedFiles, sum("file") + sum("bss") - self.own_files),
            (AccountRow::Anonymous, self.anonymous),
            (AccountRow::Memintro, self.own_files + sum("own") + self.own_code),
        ] {
            amounts.set(row, bytes);
        }
        amounts
    }

    /// The kernel says how much there is. What was counted twice or not at all is a trifle, and stands as such.
    fn balanced(&self, mut amounts: Amounts) -> Amounts {
        use AccountRow::{Anonymous, MallocFree, MallocNative, MappedFiles, RubyHeapFree, Unattributed};
        let mut rest = self.sum("rss") - amounts.0.iter().sum::<i64>();
        for row in [Anonymous, MallocNative, MallocFree, MappedFiles, RubyHeapFree] {
            if rest >= 0 {
                break;
            }
            let less = (-rest).min(amounts.get(row));
            amounts.set(row, amounts.get(row) - less);
            rest += less;
        }
        amounts.set(Unattributed, rest);
        amounts
    }

    fn basis(&self, row: AccountRow) -> &'static str {
        let needs = row.needs();
        if self.sum("pagemap") == 0 && needs != Needs::Mappings {
            return "estimated";
        }
        let is_derived = match needs {
            Needs::Owners => !self.is_searched(),
            Needs::Chunks => !self.is_glibc(),
            Needs::Pages | Needs::Mappings => false,
        };
        if is_derived { "derived" } else { "measured" }
    }

    /// What the copy had not done when it ended.
    fn unfinished(&self, counts_shared: bool) -> Option<String> {
        let said = copy_end::said(self.facts.signal);
        let sentence = if self.sum("stage") < STAGES_WITHOUT_SITES {
            format!(
                "This account is not whole: the copy that counted {said} before it knew what Ruby's objects own, which \
                 counts as malloc_native here. Ask again"
            )
        } else if copy_end::is_crash(self.facts.signal) {
            let missing = if counts_shared {
                "what is shared with other processes"
            } else {
                "the call sites of each row"
            };
            format!(
                "This account is not whole: the copy that counted {said} before it knew {missing}. Ask again"
            )
        } else {
            return None;
        };
        Some(format!("{sentence}; if it stays so, a C extension may have damaged memory."))
    }

    /// What could not be read.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.sum("pagemap") == 0 {
            notes.push(
                "the kernel does not show which pages are resident; sums of mappings are exact, and parts within one are \
                 estimated"
                    .to_owned(),
            );
        }
        notes.extend(self.note_broken());
        notes.extend(self.note_inside());
        notes.extend(self.note_objects());
        let lost = self.sum("lost");
        if lost > 0 {
            notes.push(format!("{lost} lines of figures had no room: what they were about is unattributed"));
        }
        notes.extend(self.note_mapped());
        notes
    }

    fn note_broken(&self) -> Option<String> {
        let broken = self.lines.all("broken");
        let mut places: Vec<String> = Vec::new();
        for place in broken.iter().map(|row| crate::json::shown(&row.text)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        (!broken.is_empty()).then(|| {
            format!(
                "malloc's memory could not be read to its end in {} places ({}): a block was written beyond its end, or \
                 another thread was in malloc",
                broken.len(),
                places.join(", ")
            )
        })
    }

    fn note_inside(&self) -> Option<String> {
        if self.is_inside_known() {
            return None;
        }
        let allocator = self.facts.allocator;
        Some(if self.said("thread_allocated").is_some() {
            format!(
                "the inside of {allocator} is known of the heap of the thread that asked alone: free memory of others \
                 counts as in use"
            )
        } else {
            format!("the inside of {allocator} is not known: free memory counts as in use")
        })
    }

    fn note_objects(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.facts.walks_heap {
            notes.push(
                "Ruby's heap was not asked for: what its objects own counts as malloc_native".to_owned(),
            );
        } else if self.sum("stage") < STAGES_WITHOUT_SITES {
            notes.push(
                "Ruby's objects could not be asked for their sizes: what they own counts as malloc_native"
                    .to_owned(),
            );
        }
        if self.facts.is_tracking && self.is_searched() && !self.is_listed() {
            notes.push(
                "another thread was recording at that instant: the call sites of each row are not known. Ask again"
                    .to_owned(),
            );
        }
        notes
    }

    /// Mapped blocks are found by their heads. glibc counts them: at the instant of the copy, or when it was asked.
    fn note_mapped(&self) -> Option<String> {
        let (found, size) = (self.sum("mmapped"), self.lines.sum_at("mmapped", 1));
        let (blocks, all) = match self.lines.all("counted").first() {
            Some(row) => (row.number(0), row.number(1)),
            None => (self.said("mmaps").unwrap_or(0), self.said("mmap")?),
        };
        if !self.is_glibc() || (all - size).abs() <= (size / 20).max(4 << 20) {
            return None;
        }
        Some(format!(
            "malloc says that it has {blocks} mapped blocks of {}, and {found} of {} were found",
            bytes(all),
            bytes(size)
        ))
    }
}

/// Whether a file is memintro's.
pub(super) fn is_own(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    matches!(name, b"memintro.so" | b"libmemintro_hook.so") && path.windows(8).any(|part| part == b"memintro")
}
