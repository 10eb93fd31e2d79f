//! Checks every interleaving of a small twin of the gate ([`memintro_tracker::threads`]), including the locks of libc
//! around it.
//!
//! The twin ([`words`], [`twin`]) has the words and the steps of the gate, one atomic access for each step, and a
//! store buffer for the one plain store that `membarrier` makes visible. Threads are short lists of steps. A signal
//! handler is a list of its own; it runs once, between any two accesses of its thread, or not at all. A search visits
//! each reachable state and checks:
//! - until all threads have ended, at least one can go on, whatever locks are held;
//! - no thread records while a pause reads, while the gate is being opened, or in the middle of a fork;
//! - no handler records on top of its own thread's recording, and no thread writes into another's place;
//! - in the end every event was recorded once, and events of one address in the order in which they happened. Only an
//!   event whose writing a handler held up may be dropped, and allocations of a handler while its thread is busy are
//!   untracked;
//! - a reading has all events that its own thread has ended;
//! - in the end no thread is busy, and the next thread finds the gate open, or opens it;
//! - a second thread records only after the table is locked for two.
//!
//! For each check there is a flaw that the search finds.

mod checks;
mod twin;
mod words;

use std::collections::{HashMap, HashSet, VecDeque};

use twin::Model;
use words::Step::{Arrive, Event, Hold, Lock, Pause, Release, ShortPause, Unlock};
use words::{Flaw, HANDLER, NO_THREAD, Step, Thread, World};

const THREADS: usize = 4;

impl Model {
    fn new(programs: &[&[Step]]) -> Self {
        assert!(programs.len() <= THREADS);
        let programs: Vec<_> = programs.iter().map(|steps| steps.to_vec()).collect();
        Self { handlers: vec![Vec::new(); programs.len()], programs, flaw: Flaw::None }
    }

    fn with(mut self, flaw: Flaw) -> Self {
        self.flaw = flaw;
        self
    }

    /// The same, where a handler with these steps interrupts the first thread.
    fn interrupted(self, handler: &[Step]) -> Self {
        self.interrupted_at(0, handler)
    }

    fn interrupted_at(mut self, thread: usize, handler: &[Step]) -> Self {
        self.handlers[thread] = handler.to_vec();
        self
    }

    fn first(&self) -> World {
        // A thread that arrives is not counted before it has arrived.
        let arriving = self.programs.iter().filter(|steps| steps.contains(&Arrive)).count();
        let crowd = (self.programs.len() - arriving) as u8;
        World {
            threads: vec![Thread::default(); self.programs.len()],
            locks: [NO_THREAD; 3],
            pausing: NO_THREAD,
            crowd,
            shared: crowd > 1,
            ..World::default()
        }
    }

    /// Visits every state. Returns their number, or an error in words.
    fn search(&self) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([self.first()]);
        seen.insert(self.first());
        while let Some(world) = queue.pop_front() {
            let next = caught(|| self.next(&world))?;
            if next.is_empty() {
                caught(|| self.check_end(&world))??;
            }
            for world in next {
                if seen.insert(world.clone()) {
                    queue.push_back(world);
                }
            }
        }
        Ok(seen.len())
    }

    fn check_end(&self, world: &World) -> Result<(), String> {
        let is_over =
            world.threads.iter().zip(&self.programs).all(|(thread, steps)| thread.frame.step == steps.len());
        if !is_over {
            return Err(format!("stands still: {world:?}"));
        }
        if world.threads.iter().any(|thread| thread.busy) {
            return Err(format!("busy in the end: {world:?}"));
        }
        // The next thread that comes records what is still written down.
        let mut model = self.clone();
        model.programs[0].push(Event);
        let mut last = world.clone();
        while let Some(step) = model.step(&last, 0) {
            if !model.go(&mut last, 0, step) {
                return Err(format!("whoever comes next stands still: {last:?}"));
            }
        }
        if last.closed || last.pausing != NO_THREAD || !last.noted.is_empty() {
            return Err(format!("not open in the end: {last:?}"));
        }
        model.check_events(&last)
    }

    fn check_events(&self, world: &World) -> Result<(), String> {
        let mut all: HashMap<u8, Vec<u8>> = HashMap::new();
        for (owner, number) in &world.recorded {
            all.entry(*owner).or_default().push(*number);
        }
        if !all.values().all(|numbers| numbers.is_sorted_by(|one, next| one < next)) {
            return Err(format!("out of order or twice: {world:?}"));
        }
        for (owner, number) in &world.dropped {
            all.entry(*owner).or_default().push(*number);
        }
        for (me, thread) in world.threads.iter().enumerate() {
            let count = |steps: &[Step]| steps.iter().filter(|step| **step == Event).count();
            let of_handler = if thread.has_handled { count(&self.handlers[me]) } else { 0 };
            let known = |owner: u8| all.get(&owner).map_or(0, Vec::len);
            if known(me as u8) != count(&self.programs[me])
                || known(me as u8 + HANDLER) + thread.skipped as usize != of_handler
            {
                return Err(format!("lost: {world:?}"));
            }
        }
        Ok(())
    }
}

/// The message of an assertion that fails.
fn caught<R>(action: impl FnOnce() -> R) -> Result<R, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(action)).map_err(|panic| {
        panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a mistake in the twin".to_owned())
    })
}

/// `getline` allocates under the stream's lock.
const READS_LINES: &[Step] = &[Lock(1), Event, Unlock(1)];
/// `fflush(NULL)` takes the lock of the list, then the stream's lock.
const FLUSHES: &[Step] = &[Lock(0), Lock(1), Unlock(1), Unlock(0)];
/// `fork` runs our handler, then takes the locks of the list, of all streams and of malloc.
const FORKS: &[Step] = &[Hold, Lock(0), Lock(1), Lock(2), Unlock(2), Unlock(1), Unlock(0), Release];
const READS_FIGURES: &[Step] = &[Pause, Pause];
const ALLOCATES: &[Step] = &[Event, Event];
/// A malloc that takes a lock of its own before its block is recorded, and again afterwards.
const ALLOCATES_SLOWLY: &[Step] = &[Lock(2), Unlock(2), Event, Lock(2), Unlock(2), Event];

#[test]
fn fork_lines_and_flushes_never_stand_still() {
    let states = Model::new(&[READS_LINES, FLUSHES, FORKS]).search().unwrap();
    assert!(states > 200, "{states}");
    let states = Model::new(&[READS_LINES, FLUSHES, FORKS, FORKS]).search().unwrap();
    assert!(states > 2_000, "{states}");
}

#[test]
fn a_gate_that_is_waited_at_stands_still() {
    let flaw = Model::new(&[READS_LINES, FLUSHES, FORKS]).with(Flaw::WaitsAtGate).search().unwrap_err();
    assert!(flaw.contains("stands still"), "{flaw}");
}

#[test]
fn nothing_is_recorded_in_a_pause_and_everything_once() {
    let states = Model::new(&[ALLOCATES, ALLOCATES, READS_FIGURES]).search().unwrap();
    assert!(states > 5_000, "{states}");
    Model::new(&[ALLOCATES_SLOWLY, READS_FIGURES, FORKS]).search().unwrap();
    Model::new(&[ALLOCATES, FORKS, FORKS]).search().unwrap();
    Model::new(&[ALLOCATES, &[Event], FORKS, &[Pause]]).search().unwrap();
}

#[test]
fn a_second_thread_records_with_locks_only() {
    Model::new(&[ALLOCATES, &[Arrive, Event]]).search().unwrap();
    Model::new(&[ALLOCATES, &[Arrive, Event], &[Pause]]).search().unwrap();
    Model::new(&[&[Event], &[Arrive, Event], FORKS]).search().unwrap();
    Model::new(&[&[Event], &[Arrive, Event], &[Arrive, Event]]).search().unwrap();
}

#[test]
fn the_search_finds_what_would_be_wrong() {
    let flaw = Model::new(&[ALLOCATES, READS_FIGURES]).with(Flaw::NoBarrier).search().unwrap_err();
    assert!(flaw.contains("during a pause"), "{flaw}");
    let flaw = Model::new(&[&[Pause, Event, Event], &[Arrive, Event]])
        .with(Flaw::ForgetsNewcomer)
        .search()
        .unwrap_err();
    assert!(flaw.contains("without locks"), "{flaw}");
    let flaw =
        Model::new(&[ALLOCATES, &[Arrive, Event]]).with(Flaw::TakesOpenForAbandoned).search().unwrap_err();
    assert!(flaw.contains("during a pause"), "{flaw}");
    let flaw = Model::new(&[ALLOCATES, READS_FIGURES]).with(Flaw::OpensBlindly).search().unwrap_err();
    assert!(flaw.contains("writes over another's place"), "{flaw}");
}

/// The steps of signal handlers.
const HANDLERS: [&[Step]; 4] = [&[Event], FORKS, &[Pause], &[Hold, Event, Release, Event]];

#[test]
fn handlers_may_come_upon_anything() {
    for handler in HANDLERS {
        for thread in [READS_FIGURES, ALLOCATES, FORKS, &[ShortPause, Event]] {
            Model::new(&[thread, ALLOCATES]).interrupted(handler).search().unwrap();
            Model::new(&[thread, &[Event, Pause]]).interrupted(handler).search().unwrap();
            Model::new(&[thread, FORKS]).interrupted(handler).search().unwrap();
        }
        Model::new(&[&[Event], &[Arrive, Event]]).interrupted_at(1, handler).search().unwrap();
        Model::new(&[&[Event], &[Arrive, Event]]).interrupted(handler).search().unwrap();
    }
    let states = Model::new(&[&[Pause], &[Event], FORKS]).interrupted(FORKS).search().unwrap();
    assert!(states > 10_000, "{states}");
}

fn flaw_in(model: Model, flaw: Flaw) -> String {
    model.with(flaw).search().unwrap_err().split(": ").next().unwrap_or_default().to_owned()
}

#[test]
fn the_search_finds_what_handlers_would_break() {
    let reads = || Model::new(&[&[Pause], ALLOCATES]);
    let allocates = || Model::new(&[ALLOCATES, &[Pause]]);
    assert_eq!(flaw_in(allocates().interrupted(&[Event]), Flaw::RecordsOnTop), "recorded on top");
    for handler in [FORKS, &[Pause]] {
        assert_eq!(flaw_in(reads().interrupted(handler), Flaw::WaitsForOwnTurn), "stands still");
    }
    assert_eq!(flaw_in(reads().interrupted(FORKS), Flaw::EndsPauseBelow), "recorded during a pause");
    assert_eq!(flaw_in(reads().interrupted(FORKS), Flaw::ForksOverOpenGate), "recorded during a fork");
    assert_eq!(flaw_in(allocates().interrupted(FORKS), Flaw::OpensOverRecording), "recorded on top");
    let both_fork = || Model::new(&[&[Event], FORKS]).interrupted(FORKS);
    assert_eq!(flaw_in(both_fork(), Flaw::JoinsOverRecording), "recorded during a fork");
    assert_eq!(flaw_in(both_fork(), Flaw::OpensOverNote), "waits for itself");
    let gives_up = Model::new(&[&[Event], &[ShortPause]]).interrupted(&[Event]);
    assert_eq!(flaw_in(gives_up, Flaw::OpensOverNote), "waits for itself");
    let held_up = Model::new(&[&[Event], READS_LINES, &[ShortPause]]).interrupted(FORKS);
    assert_eq!(flaw_in(held_up, Flaw::WaitsForPlace), "stands still");
    let comes_late = Model::new(&[&[Event], &[Pause, Pause], &[Event]]).interrupted(&[Event]);
    assert_eq!(flaw_in(comes_late, Flaw::KeepsSpoiledQueue), "writes over another's place");
    let arrives = Model::new(&[ALLOCATES, &[Arrive]]).interrupted_at(1, &[Event]);
    assert_eq!(flaw_in(arrives, Flaw::IsKnownUncounted), "recorded without locks");
}

#[test]
fn the_search_finds_what_a_pause_would_leave_behind() {
    let gives_up = || Model::new(&[&[ShortPause], &[Event]]);
    assert_eq!(
        flaw_in(gives_up().interrupted(&[Event]), Flaw::GivesUpBlindly),
        "writes over another's place"
    );
    assert_eq!(flaw_in(gives_up(), Flaw::KeepsTurn), "not open in the end");
    assert_eq!(flaw_in(Model::new(&[&[Pause]]), Flaw::KeepsBusy), "busy in the end");
    assert_eq!(flaw_in(Model::new(&[&[Pause], &[Pause]]), Flaw::BusyBeforeTurn), "stands still");
    let reads = Model::new(&[&[Pause], &[Event, Pause]]);
    assert_eq!(flaw_in(reads, Flaw::ReadsAtOnce), "read without what came before");
    let restarts = Model::new(&[&[Pause, Pause], &[Pause], ALLOCATES]);
    assert_eq!(flaw_in(restarts, Flaw::RestartsLate), "writes over another's place");
}
