//! Every interleaving of a small twin of the gate ([`memintro_tracker::threads`]), with the locks of libc around it.
//!
//! The twin has the gate's words and steps, one atomic access each, and a store buffer for the one plain store that
//! `membarrier` makes visible. Threads are short lists of steps; a search visits each state that they can reach and checks:
//! - somebody can always go on, until all have ended (nothing stands still, whatever locks are held);
//! - nobody records while a pause looks, or while the gate is being opened;
//! - in the end every event has been recorded once, those of one address in the order in which they happened;
//! - a second thread records only once the table is locked for two.

use std::collections::{HashMap, HashSet, VecDeque};

const THREADS: usize = 4;
const NOBODY: u8 = u8::MAX;
/// Who has the turn while threads fork.
const FORKERS: u8 = 200;

/// What a thread does, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Takes or gives a lock of libc's. (0: the list of streams, 1: a stream, 2: malloc's.)
    Lock(u8),
    Unlock(u8),
    /// Something happened that is to be recorded.
    Event,
    /// A first allocation: there are two threads now.
    Arrive,
    /// A reader's pause.
    Pause,
    /// Before and after a fork.
    Hold,
    Release,
}

/// Where a thread is within a step.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum At {
    #[default]
    Begin,
    /// Event: busy is stored, the gate not read yet; the gate was met; recording; about to write down.
    BusyStored,
    MetGate,
    Recording,
    Note,
    /// Who wants to open an abandoned gate: has the turn; has looked at the others.
    Took,
    Looks,
    /// Opening: events are recorded, then the gate is tried.
    Drains,
    Tries,
    EndTurn,
    /// A pauser: closes, barrier, waits, looks.
    Closes,
    Barrier,
    Waits,
    Reading,
    /// Arrive: counted itself; said so.
    Counted,
    Announced,
}

/// What comes after opening the gate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
enum Then {
    Retry,
    #[default]
    Next,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct Thread {
    step: usize,
    at: At,
    then: Then,
    /// What the others see, and what is still in the store buffer.
    busy: bool,
    busy_soon: bool,
    event: u8,
    /// What it has read of the gate, when that matters later.
    seen: (bool, bool, u8),
    /// Whether it records with the table's locks.
    locked: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct World {
    threads: Vec<Thread>,
    locks: [u8; 3],
    closed: bool,
    newcomer: bool,
    /// Events written down since the gate closed, and how many of them have been recorded.
    noted: Vec<(u8, u8)>,
    drained: usize,
    pausing: u8,
    forks: u8,
    crowd: u8,
    shared: bool,
    recorded: Vec<(u8, u8)>,
}

struct Model {
    programs: Vec<Vec<Step>>,
    /// What the twin is to have wrong, to see that the search finds it.
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Who meets a closed gate waits for it, as the gate once did.
    WaitsAtGate,
    /// A pauser does not make stores visible.
    NoBarrier,
    /// Whoever opens looks at the crowd only once.
    ForgetsNewcomer,
    /// Who becomes the pauser does not look whether the gate still is closed.
    TakesOpenForAbandoned,
    /// The gate opens whatever was written down meanwhile.
    OpensBlindly,
}

impl Model {
    fn new(programs: &[&[Step]]) -> Self {
        assert!(programs.len() <= THREADS);
        Self { programs: programs.iter().map(|steps| steps.to_vec()).collect(), flaw: Flaw::None }
    }

    fn with(mut self, flaw: Flaw) -> Self {
        self.flaw = flaw;
        self
    }

    fn first(&self) -> World {
        // Threads that arrive are not counted before they do.
        let arriving = self.programs.iter().filter(|steps| steps.contains(&Step::Arrive)).count();
        let crowd = (self.programs.len() - arriving) as u8;
        World {
            threads: vec![Thread::default(); self.programs.len()],
            locks: [NOBODY; 3],
            pausing: NOBODY,
            crowd,
            shared: crowd > 1,
            ..World::default()
        }
    }

    /// All states that one step of one thread, or the end of a store buffer's delay, leads to.
    fn next(&self, world: &World) -> Vec<World> {
        let mut all = Vec::new();
        for me in 0..world.threads.len() {
            let (thread, mut later) = (&world.threads[me], world.clone());
            if thread.busy != thread.busy_soon {
                later.threads[me].busy = thread.busy_soon;
                all.push(later);
                later = world.clone();
            }
            if self.programs[me].get(thread.step).is_some_and(|step| self.go(&mut later, me, *step)) {
                all.push(later);
            }
        }
        all
    }

    /// One access of one thread; `false`: it cannot go on now.
    fn go(&self, world: &mut World, me: usize, step: Step) -> bool {
        let own = me as u8;
        match (step, world.threads[me].at) {
            (Step::Lock(lock), At::Begin) => {
                if world.locks[lock as usize] != NOBODY {
                    return false;
                }
                world.locks[lock as usize] = own;
                self.done(world, me);
            }
            (Step::Unlock(lock), At::Begin) => {
                world.locks[lock as usize] = NOBODY;
                self.done(world, me);
            }
            // enter()
            (Step::Event, At::Begin) => {
                // A plain store: it may wait in the buffer.
                world.threads[me].busy_soon = true;
                world.threads[me].at = At::BusyStored;
            }
            (Step::Event, At::BusyStored) => {
                world.threads[me].at = if world.closed { At::MetGate } else { At::Recording };
                world.threads[me].locked = world.shared;
            }
            (Step::Event, At::Recording) => {
                assert!(
                    !world
                        .threads
                        .iter()
                        .any(|other| matches!(other.at, At::Reading | At::Drains | At::Tries)),
                    "recorded during a pause: {world:?}"
                );
                let at_once = world.threads.iter().filter(|other| other.at == At::Recording);
                let is_alone = at_once.clone().count() == 1;
                assert!(
                    is_alone || at_once.clone().all(|other| other.locked),
                    "recorded without locks: {world:?}"
                );
                world.recorded.push((own, world.threads[me].event));
                self.ended_event(world, me);
            }
            // meet_gate()
            (Step::Event, At::MetGate) => {
                world.threads[me].busy_soon = false;
                world.threads[me].busy = false;
                if self.flaw == Flaw::WaitsAtGate {
                    if world.closed {
                        return false;
                    }
                    world.threads[me].at = At::Begin;
                } else if world.closed && world.pausing == NOBODY {
                    world.pausing = own;
                    self.set_busy(world, me, true);
                    world.threads[me].then = Then::Retry;
                    world.threads[me].at = At::Took;
                } else {
                    world.threads[me].at = At::Note;
                }
            }
            // note(): the gate's word says whether it is closed and where to write
            (Step::Event, At::Note) => {
                if world.closed {
                    let event = (own, world.threads[me].event);
                    world.noted.push(event);
                    self.ended_event(world, me);
                } else {
                    world.threads[me].at = At::Begin;
                }
            }
            // open_if_abandoned()
            (_, At::Took) => {
                // Only who has the turn opens the gate: once it is seen closed, it stays so.
                if world.closed || self.flaw == Flaw::TakesOpenForAbandoned {
                    world.threads[me].at = At::Barrier;
                } else {
                    world.threads[me].at = At::EndTurn;
                }
            }
            (_, At::Looks) => {
                world.threads[me].at = if self.others_are_busy(world, me) {
                    world.threads[me].then = Then::Next;
                    At::EndTurn
                } else {
                    At::Drains
                };
            }
            // open()
            (_, At::Drains) => {
                if world.threads[me].seen.2 == 0 || self.flaw != Flaw::ForgetsNewcomer {
                    world.shared |= world.crowd > 1;
                }
                world.threads[me].seen = (world.closed, world.newcomer, world.noted.len() as u8);
                while world.drained < world.noted.len() {
                    world.recorded.push(world.noted[world.drained]);
                    world.drained += 1;
                }
                world.threads[me].at = At::Tries;
            }
            (_, At::Tries) => {
                let now = (world.closed, world.newcomer, world.noted.len() as u8);
                let seen = world.threads[me].seen;
                let newcomer_is_known = self.flaw == Flaw::ForgetsNewcomer || now.1 == seen.1;
                let is_same = now.0 == seen.0 && newcomer_is_known && now.2 == seen.2;
                if is_same || self.flaw == Flaw::OpensBlindly {
                    (world.closed, world.newcomer, world.drained) = (false, false, 0);
                    world.noted.clear();
                    world.threads[me].at = At::EndTurn;
                } else {
                    world.threads[me].at = At::Drains;
                }
                world.threads[me].seen = (false, false, 0);
            }
            (_, At::EndTurn) => {
                self.set_busy(world, me, false);
                world.pausing = NOBODY;
                match (step, world.threads[me].then) {
                    (Step::Event, Then::Retry) => world.threads[me].at = At::Begin,
                    (Step::Event, Then::Next) => world.threads[me].at = At::Note,
                    _ => self.done(world, me),
                }
            }
            // pause()
            (Step::Pause, At::Begin) => {
                if world.pausing != NOBODY {
                    return false;
                }
                world.pausing = own;
                self.set_busy(world, me, true);
                world.threads[me].at = At::Closes;
            }
            // hold_for_fork() and join_forks()
            (Step::Hold, At::Begin) => {
                if world.forks > 0 {
                    world.forks += 1;
                    self.done(world, me);
                } else if world.pausing == NOBODY {
                    world.pausing = FORKERS;
                    world.threads[me].at = At::Closes;
                } else {
                    return false;
                }
            }
            (_, At::Closes) => {
                world.closed = true;
                world.threads[me].at = At::Barrier;
            }
            (_, At::Barrier) => {
                self.barrier(world);
                let is_a_look = matches!(step, Step::Event | Step::Arrive);
                world.threads[me].at = if is_a_look { At::Looks } else { At::Waits };
            }
            (_, At::Waits) => {
                if self.others_are_busy(world, me) {
                    return false;
                }
                if step == Step::Hold {
                    world.forks = 1;
                    self.done(world, me);
                } else {
                    world.threads[me].at = At::Reading;
                }
            }
            (Step::Pause, At::Reading) => world.threads[me].at = At::Drains,
            (Step::Release, At::Begin) => {
                world.forks -= 1;
                if world.forks == 0 {
                    self.set_busy(world, me, true);
                    world.threads[me].at = At::Drains;
                } else {
                    self.done(world, me);
                }
            }
            // first_call() and announce()
            (Step::Arrive, At::Begin) => {
                world.crowd += 1;
                world.threads[me].at = At::Counted;
            }
            (Step::Arrive, At::Counted) => {
                if world.crowd < 2 || world.shared {
                    self.done(world, me);
                } else {
                    (world.closed, world.newcomer) = (true, true);
                    world.threads[me].at = At::Announced;
                }
            }
            (Step::Arrive, At::Announced) => {
                if world.pausing == NOBODY {
                    world.pausing = own;
                    self.set_busy(world, me, true);
                    world.threads[me].at = At::Took;
                } else {
                    self.done(world, me);
                }
            }
            (step, at) => unreachable!("{step:?} at {at:?}"),
        }
        true
    }

    fn done(&self, world: &mut World, me: usize) {
        world.threads[me].step += 1;
        world.threads[me].at = At::Begin;
        world.threads[me].then = Then::Next;
        world.threads[me].seen = (false, false, 0);
        world.threads[me].locked = false;
    }

    fn ended_event(&self, world: &mut World, me: usize) {
        world.threads[me].event += 1;
        world.threads[me].busy_soon = false;
        world.threads[me].busy = false;
        self.done(world, me);
    }

    /// A store that is followed by one that all see in order.
    fn set_busy(&self, world: &mut World, me: usize, busy: bool) {
        (world.threads[me].busy, world.threads[me].busy_soon) = (busy, busy);
    }

    fn barrier(&self, world: &mut World) {
        if self.flaw != Flaw::NoBarrier {
            world.threads.iter_mut().for_each(|thread| thread.busy = thread.busy_soon);
        }
    }

    fn others_are_busy(&self, world: &World, me: usize) -> bool {
        world.threads.iter().enumerate().any(|(other, thread)| other != me && thread.busy)
    }

    /// Visits every state; answers how many there are, or what is wrong.
    fn search(&self) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([self.first()]);
        seen.insert(self.first());
        while let Some(world) = queue.pop_front() {
            let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.next(&world)))
                .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())?;
            if next.is_empty() {
                self.check_end(&world)?;
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
            world.threads.iter().zip(&self.programs).all(|(thread, steps)| thread.step == steps.len());
        if !is_over {
            return Err(format!("stands still: {world:?}"));
        }
        // What is still written down is recorded by whoever comes next.
        let mut all = world.recorded.clone();
        all.extend(&world.noted[world.drained..]);
        let mut wanted = HashMap::new();
        for (own, number) in all {
            let next = wanted.entry(own).or_insert(0);
            if *next != number {
                return Err(format!("out of order, lost or twice: {world:?}"));
            }
            *next += 1;
        }
        for (me, steps) in self.programs.iter().enumerate() {
            let events = steps.iter().filter(|step| **step == Step::Event).count() as u8;
            if wanted.get(&(me as u8)).copied().unwrap_or(0) != events {
                return Err(format!("lost: {world:?}"));
            }
        }
        Ok(())
    }
}

use Step::{Arrive, Event, Hold, Lock, Pause, Release, Unlock};

/// `getline`: allocates under the stream's lock.
const READS_LINES: &[Step] = &[Lock(1), Event, Unlock(1)];
/// `fflush(NULL)`: takes the lock of the list, then the stream's.
const FLUSHES: &[Step] = &[Lock(0), Lock(1), Unlock(1), Unlock(0)];
/// `fork`: our handler, then the locks of the list, of all streams and of malloc.
const FORKS: &[Step] = &[Hold, Lock(0), Lock(1), Lock(2), Unlock(2), Unlock(1), Unlock(0), Release];
const READS_FIGURES: &[Step] = &[Pause, Pause];
const ALLOCATES: &[Step] = &[Event, Event];
/// A malloc that takes a lock of its own before and after it is recorded.
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
    assert!(flaw.contains("lost"), "{flaw}");
}
