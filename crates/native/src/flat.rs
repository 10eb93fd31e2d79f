//! Unwind tables in a form that can be read inside malloc: everything is computed in advance, and a frame
//! costs a look-up.
//!
//! The tables of all modules are flattened outside of malloc ([`Flattener::flatten`]). Following a stack
//! ([`Flat::walk`]) allocates nothing, takes no lock, and reads only words of the calling thread's stack that
//! may be read. [`Steps`] caches the row of each address.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gimli::{BaseAddresses, EhFrame, EhFrameOffset, LittleEndian, UnwindContext, UnwindSection as _};

use crate::frame::{Base, Registers, Rule, Saved, all_entries};
use crate::modules::{Loaded, Modules, Tables};
use crate::recent::{Places, Recent};
use crate::steps::{Step, Steps};

/// Most frames of a stack.
pub const MOST_FRAMES: usize = 60;
/// Most skipped frames before the first kept one: memintro's own.
const MOST_PASSED: usize = 40;
/// Addresses that share a beginning in the index.
const BUCKET: u32 = 7;
/// A frame is not larger.
const MOST_FRAME_BYTES: u64 = 8 << 20;
/// Most rows of one module. Modules with more are not followed.
const MOST_ROWS: usize = 4 << 20;

/// How to find the caller from addresses on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The first address, in the file.
    pub(crate) at: u32,
    pub(crate) base: i32,
    pub(crate) saved: i32,
    pub(crate) kinds: Kinds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) base: BaseKind,
    pub(crate) saved: SavedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseKind {
    None,
    Stack,
    Frame,
    WordAtFrame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedKind {
    Same,
    At,
    AtFrame,
    Lost,
}

const NOTHING: Kinds = Kinds { base: BaseKind::None, saved: SavedKind::Lost };

impl Row {
    pub(crate) fn nothing(at: u32) -> Self {
        Self { at, base: 0, saved: 0, kinds: NOTHING }
    }

    /// The row of a rule. The return address lies below the canonical frame address in each function of x86-64.
    fn from_rule(at: u32, rule: Option<&Rule>) -> Self {
        let Some(rule) = rule.filter(|rule| rule.return_address == -8) else { return Self::nothing(at) };
        let (base, offset) = match rule.base {
            Base::Stack(offset) => (BaseKind::Stack, offset),
            Base::Frame(offset) => (BaseKind::Frame, offset),
            Base::WordAtFrame(offset) => (BaseKind::WordAtFrame, offset),
        };
        let (saved, saved_at) = match rule.frame_pointer {
            Saved::Same => (SavedKind::Same, 0),
            Saved::At(offset) => (SavedKind::At, offset),
            Saved::AtFrame(offset) => (SavedKind::AtFrame, offset),
            Saved::Lost => (SavedKind::Lost, 0),
        };
        match (i32::try_from(offset), i32::try_from(saved_at)) {
            (Ok(base_at), Ok(saved_at)) => {
                Self { at, base: base_at, saved: saved_at, kinds: Kinds { base, saved } }
            }
            _ => Self::nothing(at),
        }
    }

    fn apply(self, of: Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Registers> {
        let base = i64::from(self.base);
        let cfa = match self.kinds.base {
            BaseKind::None => return None,
            BaseKind::Stack => of.sp.checked_add_signed(base)?,
            BaseKind::Frame => of.bp.checked_add_signed(base)?,
            BaseKind::WordAtFrame => read(of.bp.checked_add_signed(base)?)?,
        };
        // Each frame lies above the one that it calls, so that no stack goes round.
        if cfa <= of.sp || cfa.wrapping_sub(of.sp) > MOST_FRAME_BYTES {
            return None;
        }
        let ip = read(cfa.checked_sub(8)?)?;
        let saved = i64::from(self.saved);
        let bp = match self.kinds.saved {
            SavedKind::Same => of.bp,
            SavedKind::At => read(cfa.checked_add_signed(saved)?).unwrap_or(0),
            SavedKind::AtFrame => of.bp.checked_add_signed(saved).and_then(&mut *read).unwrap_or(0),
            SavedKind::Lost => 0,
        };
        (ip != 0).then_some(Registers { ip, sp: cfa, bp })
    }
}

/// The rows of a module.
#[derive(Debug, Default)]
struct FlatTable {
    rows: Vec<Row>,
    /// For each so many addresses, the first row that may hold for them.
    index: Vec<u32>,
}

/// A module.
#[derive(Debug)]
pub struct FlatModule {
    /// The addresses of its code.
    pub code: Range<u64>,
    base: u64,
    table: Arc<FlatTable>,
    /// Its path, behind a NUL, which distinguishes it from files of Ruby.
    pub path: Vec<u8>,
    /// Frames of it are looked for.
    pub is_watched: bool,
    /// Frames of it are passed over: memintro's own.
    is_own: bool,
}

impl FlatModule {
    /// The addresses of its code, from the beginning of a page on.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.code.start & !4095..self.code.end
    }

    /// An address as in the file.
    #[must_use]
    pub fn offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.base)
    }

    fn row(&self, address: u64) -> Option<Row> {
        self.table.row(u32::try_from(self.offset(address)).ok()?)
    }
}

impl FlatTable {
    fn new(tables: &Tables) -> Self {
        let rows = rows(tables);
        Self { index: index_of(&rows), rows }
    }

    fn row(&self, at: u32) -> Option<Row> {
        let bucket = (at >> BUCKET) as usize;
        let from = *self.index.get(bucket)? as usize;
        let to = self.index.get(bucket + 1).map_or(self.rows.len(), |next| *next as usize + 1);
        let rows = self.rows.get(from..to.min(self.rows.len()))?;
        let after = rows.partition_point(|row| row.at <= at);
        rows.get(after.checked_sub(1)?).copied()
    }
}

/// All modules, in the order of their addresses.
#[derive(Debug, Default)]
pub struct Flat {
    modules: Vec<FlatModule>,
    /// Where following ends: the interpreter. Frames further out belong to other lines.
    ends: Vec<Range<u64>>,
    steps: Steps,
    recent: Recent,
}

/// Facts about a stack that was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// A hash of its addresses.
    pub hash: u64,
    /// There is a frame of a module that is watched.
    pub is_watched: bool,
    /// It was followed up to the interpreter.
    pub is_whole: bool,
    /// The address at which no module is known, where it ended so.
    pub unknown: Option<u64>,
}

/// How to treat the frames of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Its frames are looked for.
    Watched,
    /// Its frames are kept.
    Kept,
    /// Its frames are passed over.
    Own,
}

/// Makes the tables anew whenever modules have come or gone.
#[derive(Debug)]
pub struct Flattener {
    modules: Modules,
    /// By load address and number of the module.
    known: HashMap<(u64, u32), Arc<FlatTable>>,
}

impl Flattener {
    /// With one address each of some modules that are never unloaded.
    #[must_use]
    pub fn new(lasting: Vec<u64>) -> Self {
        Self { modules: Modules::new(lasting), known: HashMap::new() }
    }

    /// The modules.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The tables of all modules that are loaded now; `None`: unchanged. `wanted` decides how to treat the
    /// module with a path and a range of code.
    pub fn flatten(
        &mut self,
        loaded: &dyn Loaded,
        ends: &[Range<u64>],
        wanted: impl Fn(&[u8], &Range<u64>) -> Wanted,
    ) -> Option<Flat> {
        let before = self.modules.changes();
        self.modules.refresh(loaded);
        if before == self.modules.changes() {
            return None;
        }
        let mut found = Vec::new();
        for index in 0..self.modules.len() {
            let Some(module) = self.modules.get(index) else { continue };
            let (base, code, number) = (module.base, module.code.clone(), module.number);
            let mut path = vec![0];
            path.extend(self.modules.identity(number).map_or(&b""[..], |identity| &identity.path));
            let wanted = wanted(path.get(1..).unwrap_or_default(), &code);
            let table = match self.known.get(&(base, number)) {
                Some(known) => Arc::clone(known),
                None => {
                    let made = self.modules.tables(index, loaded).map(FlatTable::new).unwrap_or_default();
                    let made = Arc::new(made);
                    self.known.insert((base, number), Arc::clone(&made));
                    made
                }
            };
            let (is_watched, is_own) = (wanted == Wanted::Watched, wanted == Wanted::Own);
            found.push(FlatModule { code, base, table, path, is_watched, is_own });
        }
        Some(Flat { modules: found, ends: ends.to_vec(), steps: Steps::default(), recent: Recent::default() })
    }
}

impl Flat {
    /// All modules.
    #[must_use]
    pub fn modules(&self) -> &[FlatModule] {
        &self.modules
    }

    /// The module that an address is in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&FlatModule> {
        let after = self.modules.partition_point(|module| module.code.start <= address);
        self.modules.get(after.checked_sub(1)?).filter(|module| module.code.contains(&address))
    }

    /// How to continue at an address; `None`: it is in no module.
    #[inline]
    fn step(&self, inside: u64) -> Option<Step> {
        self.steps.get(inside).or_else(|| self.look_up(inside))
    }

    #[cold]
    fn look_up(&self, inside: u64) -> Option<Step> {
        let step = if self.ends.iter().any(|end| end.contains(&inside)) {
            Step::END
        } else {
            let module = self.find(inside)?;
            Step {
                is_end: false,
                is_own: module.is_own,
                is_watched: module.is_watched,
                row: module.row(inside).unwrap_or(Row::nothing(0)),
            }
        };
        self.steps.put(inside, step);
        Some(step)
    }

    /// The result of [`Self::walk`], faster for stacks that were followed recently.
    #[inline]
    pub fn recognize(&self, of: Registers, mut read: impl FnMut(u64) -> Option<u64>) -> Walked {
        self.recent.recall(&of, &mut read).unwrap_or_else(|| {
            let mut places = Places::new();
            let walked = self.follow(of, read, |_| {}, &mut places);
            if walked.is_whole {
                self.recent.keep(&of, &places, &walked);
            }
            walked
        })
    }

    /// Visits return addresses from the inside, up to the interpreter or the last known one. `read` returns a
    /// word.
    pub fn walk(
        &self,
        of: Registers,
        read: impl FnMut(u64) -> Option<u64>,
        visit: impl FnMut(u64),
    ) -> Walked {
        self.follow(of, read, visit, &mut Places::new())
    }

    fn follow(
        &self,
        mut of: Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
        mut visit: impl FnMut(u64),
        places: &mut Places,
    ) -> Walked {
        let first = of;
        let mut walked =
            Walked { hash: 0x517c_c1b7_2722_0a95, is_watched: false, is_whole: false, unknown: None };
        let mut inside = of.ip;
        let mut count = 0;
        for _ in 0..MOST_FRAMES + MOST_PASSED {
            let Some(step) = self.step(inside) else {
                walked.unknown = Some(inside);
                break;
            };
            if step.is_end {
                walked.is_whole = true;
                break;
            }
            if !step.is_own {
                if count == MOST_FRAMES {
                    break;
                }
                count += 1;
                walked.hash = (walked.hash.rotate_left(5) ^ of.ip).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                walked.is_watched |= step.is_watched;
                visit(of.ip);
            }
            let Some(caller) = step.row.apply(of, &mut read) else { break };
            if step.row.kinds.base == BaseKind::Stack {
                places.add(&first, &caller);
            } else {
                places.give_up();
            }
            of = caller;
            inside = of.ip.wrapping_sub(1);
        }
        walked
    }
}

/// All rows of a module's tables, in the order of their addresses.
fn rows(tables: &Tables) -> Vec<Row> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(tables.index_at).set_eh_frame(tables.frames_at);
    let section = EhFrame::new(&tables.frames, LittleEndian);
    let mut context = UnwindContext::new();
    let mut rows: Vec<Row> = Vec::new();
    for at in all_entries(tables) {
        let Some(at) = at.checked_sub(tables.frames_at).and_then(|at| usize::try_from(at).ok()) else {
            continue;
        };
        let entry = section.fde_from_offset(&bases, EhFrameOffset(at), |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        });
        let Ok(entry) = entry else { continue };
        let Ok(mut table) = entry.rows(&section, &bases, &mut context) else { continue };
        let function = entry.initial_address()..entry.initial_address().saturating_add(entry.len());
        let is_handler = entry.is_signal_trampoline();
        while let Ok(Some(row)) = table.next_row() {
            if rows.len() > MOST_ROWS {
                return Vec::new();
            }
            let Ok(start) = u32::try_from(row.start_address()) else { continue };
            let rule = Rule::of_row(row, &section, entry.cie().encoding(), function.clone());
            rows.push(Row::from_rule(start, rule.as_ref().filter(|_| !is_handler)));
        }
        if let Ok(end) = u32::try_from(function.end) {
            rows.push(Row::nothing(end));
        }
    }
    // For a function that begins where another one ends, its own row counts.
    rows.sort_by_key(|row| (row.at, row.kinds != NOTHING));
    let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        match kept.last_mut() {
            Some(last) if last.at == row.at => *last = row,
            Some(last) if (last.base, last.saved, last.kinds) == (row.base, row.saved, row.kinds) => {}
            _ => kept.push(row),
        }
    }
    kept.shrink_to_fit();
    kept
}

/// For each bucket the last row that begins at or before it.
fn index_of(rows: &[Row]) -> Vec<u32> {
    let Some(last) = rows.last() else { return Vec::new() };
    let mut at = 0_usize;
    (0..=last.at >> BUCKET)
        .map(|bucket| {
            let start = bucket << BUCKET;
            while rows.get(at + 1).is_some_and(|next| next.at <= start) {
                at += 1;
            }
            at as u32
        })
        .collect()
}

/// Whether the page of this address may be read: the kernel reads the signal set before it refuses the call.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[must_use]
pub fn is_readable(page: u64) -> bool {
    let answer: i64;
    // SAFETY: the kernel reads the set before it looks at `how`, which it then refuses. The call does not touch errno.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") libc::SYS_rt_sigprocmask => answer,
            in("rdi") -1_i64, in("rsi") page, in("rdx") 0_u64, in("r10") 8_u64,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    answer == -i64::from(libc::EINVAL)
}

/// On other processors nothing is unwound.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
#[must_use]
pub fn is_readable(_: u64) -> bool {
    false
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::frame::tests::program;

    #[test]
    fn rows_say_what_the_tables_say_at_each_address() {
        let (tables, functions) = program();
        let addresses = functions
            .iter()
            .filter(|(_, size)| *size > 8)
            .flat_map(|(begin, size)| (0..*size).step_by(7).map(move |step| begin + step));
        let table = FlatTable::new(&tables);
        let mut context = UnwindContext::new();
        let mut compared = 0;
        for address in addresses {
            let rule = Rule::find(&tables, &mut context, address);
            let expected = Row::from_rule(0, rule.as_ref());
            let Some(found) = table.row(u32::try_from(address).unwrap()) else {
                assert_eq!(expected.kinds, NOTHING, "{address:#x}");
                continue;
            };
            assert_eq!(
                (found.base, found.saved, found.kinds),
                (expected.base, expected.saved, expected.kinds),
                "{address:#x}"
            );
            compared += usize::from(found.kinds != NOTHING);
        }
        assert!(compared > 5_000, "{compared}");
    }

    #[test]
    fn a_stack_ends_where_it_cannot_be_read_or_goes_round() {
        let row =
            Row { at: 0, base: 16, saved: -16, kinds: Kinds { base: BaseKind::Frame, saved: SavedKind::At } };
        let of = Registers { ip: 5, sp: 1000, bp: 900 };
        assert_eq!(row.apply(of, &mut |_| Some(7)), None);
        assert_eq!(row.apply(Registers { bp: 2000, ..of }, &mut |_| None), None);
        assert_eq!(row.apply(Registers { bp: u64::MAX, ..of }, &mut |_| Some(7)), None);
        let caller = row.apply(Registers { bp: 2000, ..of }, &mut |address| Some(address));
        assert_eq!(caller, Some(Registers { ip: 2008, sp: 2016, bp: 2000 }));
    }

    #[test]
    fn a_page_that_is_there_can_be_read_and_one_that_is_not_cannot() {
        let here = 7_u64;
        assert!(is_readable((&raw const here).addr() as u64 & !4095));
        assert!(!is_readable(4096));
    }
}
