//! Walks all modules, to patch or to restore their slots.

use core::mem;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};

use memintro_abi::SlotState;
use memintro_elf::{Malformed, Module, Relocation, RelocationKind};

use super::Outcome;
use super::book::{Book, List, Record};
use super::judge::{Candidate, Owner, SlotValue, judge};
use super::modules::{Changes, Loaded, changes, count_load, walk};
use super::names::Names;
use super::resolve::{came_with_the_program, real, scope};
use super::slot::{self, Kept, Writer};
use crate::functions::{self, FUNCTIONS};
use crate::real::Stub;

/// Walks for which a module that another thread seems to be loading is read again. The number is limited, because a
/// module may stay in a state that looks like that.
const MOST_RETRIES: u32 = 64;

/// Whether a library was opened with `RTLD_DEEPBIND`.
pub(super) static DEEP_BINDING: AtomicBool = AtomicBool::new(false);

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Writes the stubs into the slots.
    In,
    /// Writes the former values back into the slots.
    Out,
}

/// Walks all modules.
pub(super) fn everything(book: &mut Book, direction: Direction) -> Outcome {
    let previous = mem::replace(&mut book.records, List::new());
    if direction == Direction::In {
        book.forget_modules();
    }
    let mut sweep = Sweep::new(book, direction, previous);
    walk(|loaded| {
        sweep.visit(loaded);
        ControlFlow::Continue(())
    });
    let outcome = sweep.outcome;
    book.retries = if book.is_pending { book.retries.saturating_add(1) } else { 0 };
    outcome
}

/// Reads what has changed: mostly nothing, or new modules at the end of the list, or something that requires a new
/// walk.
pub(super) fn again(book: &mut Book) -> Outcome {
    if book.wanted == 0 {
        return Outcome::default();
    }
    let now = changes();
    if now != book.changes {
        book.retries = 0;
        if now.unloaded != book.changes.unloaded {
            count_load();
        }
    }
    let mut state = State::Same;
    let mut sweep = Sweep::new(book, Direction::In, List::new());
    walk(|loaded| {
        if loaded.index == 0 {
            state = sweep.state(loaded.changes);
        }
        match state {
            State::Same | State::Changed => ControlFlow::Break(()),
            State::Longer if !sweep.is_known(loaded) => {
                state = State::Changed;
                ControlFlow::Break(())
            }
            State::Longer => {
                sweep.visit(loaded);
                ControlFlow::Continue(())
            }
        }
    });
    let outcome = sweep.outcome;
    if state == State::Changed { everything(book, Direction::In) } else { outcome }
}

/// How the loader's list has changed since the last walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Same,
    Longer,
    Changed,
}

struct Sweep<'a> {
    book: &'a mut Book,
    direction: Direction,
    names: Names,
    /// The program's own PLT entries for the functions that are taken over; 0 for none.
    canonical: [u64; 64],
    /// Records of the previous walk, and where the last one was found, because the order is mostly the same.
    previous: List<Record>,
    cursor: usize,
    outcome: Outcome,
}

impl<'a> Sweep<'a> {
    fn new(book: &'a mut Book, direction: Direction, previous: List<Record>) -> Self {
        let names = Names::new(book.wanted);
        Self { book, direction, names, canonical: [0; 64], previous, cursor: 0, outcome: Outcome::default() }
    }

    /// Called while the list is locked: if no module was unloaded, all known slots can be read.
    fn state(&self, now: Changes) -> State {
        if now.unloaded != self.book.changes.unloaded
            || (self.book.is_pending && self.book.retries < MOST_RETRIES)
        {
            return State::Changed;
        }
        let holds = |record: &Record| slot::read(record.slot).is_none_or(|value| value == record.value);
        if !self.book.records.as_slice().iter().all(holds) {
            State::Changed
        } else if now.loaded != self.book.changes.loaded {
            State::Longer
        } else {
            State::Same
        }
    }

    /// Whether a module is at its former place in the list, or is new and behind all known ones.
    fn is_known(&self, loaded: &Loaded<'_>) -> bool {
        let known = self.book.modules.as_slice().get(loaded.index as usize);
        known.is_none_or(|known| known.base == loaded.base)
    }

    fn visit(&mut self, loaded: &Loaded<'_>) {
        if loaded.index == 0 {
            self.find_canonical(loaded);
            if self.direction == Direction::In {
                self.book.changes = loaded.changes;
                // The list is locked, so what is found stays valid until all slots have been judged by it.
                functions::resolve();
            }
        }
        let is_visited = self.direction == Direction::In && (loaded.index as usize) < self.book.modules.len();
        if is_visited {
            return;
        }
        if loaded.is_excluded() {
            self.note(loaded, false);
            return;
        }
        bump(&mut self.outcome.modules);
        let first = self.book.records.len();
        let module = loaded.module();
        // Slots are changed only after the whole module has been read. A malformed module is not changed.
        let read = module.and_then(|module| self.collect(loaded, &module).map(|()| module));
        self.note(loaded, read.is_err());
        match read {
            Ok(module) => self.change(&module, first),
            Err(_) => {
                self.book.records.truncate(first);
                bump(&mut self.outcome.malformed);
            }
        }
        if self.direction == Direction::Out {
            self.book.records.truncate(first);
        }
    }

    /// Modules are recorded in the order of the list, all of them, because their place identifies them.
    fn note(&mut self, loaded: &Loaded<'_>, is_malformed: bool) {
        if self.direction == Direction::In && !self.book.add_module(loaded.base, loaded.name, is_malformed) {
            self.book.distrust();
            bump(&mut self.outcome.unwritten);
        }
    }

    fn find_canonical(&mut self, program: &Loaded<'_>) {
        let Ok(module) = program.module() else { return };
        for (function, canonical) in FUNCTIONS.iter().zip(&mut self.canonical) {
            *canonical = module.canonical_plt(function.name.to_bytes()).ok().flatten().unwrap_or(0);
        }
    }

    /// Finds the slots of the functions that are taken over, and judges them.
    fn collect(&mut self, loaded: &Loaded<'_>, module: &Module<'_>) -> Result<(), Malformed> {
        let stubs = self.book.stubs;
        let (records, outcome) = (&mut self.book.records, &mut self.outcome);
        let owner = Owner { module, base: loaded.base, is_early: came_with_the_program(loaded) };
        let (first, mut pending, mut evidence) = (records.len(), false, Evidence::default());
        module.relocations(|relocation: Relocation<'_>| {
            // An addend in data makes another pointer. In a slot for calls the addend is not added: Debian 13's libc
            // (linked with -z mark-plt) stores in it which PLT entry the slot belongs to.
            let is_plain = relocation.kind != RelocationKind::Absolute || relocation.addend == 0;
            let Some(function) = self.names.find(relocation.name).filter(|_| is_plain) else {
                return;
            };
            let Some(candidate) = candidate(stubs, function, &self.canonical) else { return };
            let value = slot::read(relocation.slot);
            let slot_value =
                value.map_or(SlotValue::Foreign, |value| judge(&candidate, &relocation, value, &owner));
            evidence.add(&candidate, &relocation, slot_value);
            pending |= slot_value == SlotValue::Unrelocated;
            if slot_value == SlotValue::Covered {
                return;
            }
            let value = value.unwrap_or(0);
            let record = Record {
                slot: relocation.slot,
                original: value,
                value,
                module: loaded.index,
                function,
                slot_value,
                state: SlotState::FOREIGN,
            };
            if !records.push(record) {
                // A slot is patched only if it can be recorded.
                bump(&mut outcome.refused);
                bump(&mut outcome.unwritten);
            }
        })?;
        if pending {
            self.book.distrust();
        }
        self.decide_doubtful(first, &evidence);
        Ok(())
    }

    /// Judges unbound slots in a module that may have been opened with `RTLD_DEEPBIND`. Bound slots show whether it
    /// was. If there is none, it was not, unless some library has been opened that way.
    fn decide_doubtful(&mut self, first: usize, evidence: &Evidence) {
        let is_free = evidence.for_us || !(evidence.against || DEEP_BINDING.load(Ordering::Relaxed));
        let slot_value = if is_free { SlotValue::Free } else { SlotValue::Unsure };
        let records = self.book.records.as_mut_slice().iter_mut().skip(first);
        for record in records.filter(|record| record.slot_value == SlotValue::Doubtful) {
            record.slot_value = slot_value;
        }
    }

    fn change(&mut self, module: &Module<'_>, first: usize) {
        let mut writer = Writer::new(module);
        for index in first..self.book.records.len() {
            let Some(mut record) = self.book.records.as_slice().get(index).copied() else { return };
            let previous = self.previous(record.slot);
            match self.direction {
                Direction::In => self.put_in(&mut writer, &mut record, previous),
                Direction::Out => self.put_back(&mut writer, module, &record, previous),
            }
            if let Some(kept) = self.book.records.as_mut_slice().get_mut(index) {
                *kept = record;
            }
        }
    }

    fn put_in(&mut self, writer: &mut Writer, record: &mut Record, previous: Option<Record>) {
        let Some(candidate) = candidate(self.book.stubs, record.function, &self.canonical) else { return };
        let was_ours = previous.is_some_and(|previous| previous.state == SlotState::PATCHED);
        if was_ours && record.slot_value != SlotValue::Ours {
            bump(&mut self.outcome.lost);
        }
        record.state = match record.slot_value {
            SlotValue::Ours => {
                let real = candidate.real.unwrap_or(record.value);
                record.original = previous.map_or(real, |previous| previous.original);
                SlotState::PATCHED
            }
            SlotValue::Free => match writer.put_in(record.slot, record.value, candidate.ours) {
                Ok(()) => {
                    record.value = candidate.ours;
                    SlotState::PATCHED
                }
                Err(Kept::Refused) => SlotState::REFUSED,
                // The slot was bound at this moment, or is not fully relocated. The next refresh reads its new value.
                Err(Kept::Changed | Kept::Loading) => {
                    self.book.distrust();
                    SlotState::REFUSED
                }
            },
            _ if was_ours || previous.is_some_and(|previous| previous.state == SlotState::LOST) => {
                SlotState::LOST
            }
            _ => SlotState::FOREIGN,
        };
        match record.state {
            SlotState::PATCHED => bump(&mut self.outcome.patched),
            SlotState::REFUSED => bump(&mut self.outcome.refused),
            SlotState::FOREIGN => bump(&mut self.outcome.foreign),
            _ => {}
        }
    }

    fn put_back(
        &mut self,
        writer: &mut Writer,
        module: &Module<'_>,
        record: &Record,
        previous: Option<Record>,
    ) {
        if record.slot_value != SlotValue::Ours {
            return;
        }
        let Some(candidate) = candidate(self.book.stubs, record.function, &self.canonical) else { return };
        // An old record may belong to another module that was at this address before.
        let stub = previous.map(|previous| previous.original).filter(|stub| module.is_code(*stub as u64));
        match stub.or(candidate.real).map(|old| writer.put_back(record.slot, candidate.ours, old)) {
            Some(Ok(())) => bump(&mut self.outcome.patched),
            Some(Err(Kept::Changed | Kept::Loading)) => {}
            Some(Err(Kept::Refused)) | None => bump(&mut self.outcome.refused),
        }
    }

    fn previous(&mut self, slot: u64) -> Option<Record> {
        let (before, behind) = self.previous.as_slice().split_at_checked(self.cursor)?;
        let place = behind
            .iter()
            .position(|record| record.slot == slot)
            .map(|place| place.saturating_add(self.cursor));
        let place = place.or_else(|| before.iter().position(|record| record.slot == slot))?;
        self.cursor = place;
        self.previous.as_slice().get(place).copied()
    }
}

/// What a module's bound slots show about its lookup of functions that several modules define.
#[derive(Debug, Default)]
struct Evidence {
    /// One of them is bound to the first definition in the usual scope.
    for_us: bool,
    /// One of them is bound to another definition.
    against: bool,
}

impl Evidence {
    fn add(&mut self, candidate: &Candidate, relocation: &Relocation<'_>, slot_value: SlotValue) {
        // Any code may have set pointers in data.
        if relocation.kind == RelocationKind::Absolute
            || !candidate.scope.is_early
            || !candidate.scope.has_others
        {
            return;
        }
        match slot_value {
            // A slot in the module's own PLT may be unbound, which shows nothing; but such a slot needs no proof.
            SlotValue::Ours | SlotValue::Free => self.for_us = true,
            SlotValue::Foreign => self.against = true,
            _ => {}
        }
    }
}

/// A function and what is known of the real one.
fn candidate(stubs: &[Stub], index: u8, canonical: &[u64; 64]) -> Option<Candidate> {
    let Stub { function, address } = stubs.get(usize::from(index))?;
    let canonical = canonical.get(usize::from(index)).copied().filter(|address| *address != 0);
    Some(Candidate { ours: *address as usize, real: real(function), scope: scope(index), canonical })
}

fn bump(count: &mut u32) {
    *count = count.saturating_add(1);
}
