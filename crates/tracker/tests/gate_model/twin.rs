//! The steps of the twin's threads: each single access that they make.

use crate::words::{At, FORKERS, Flaw, Frame, HANDLER, Held, NO_THREAD, Place, Step, Then, World};

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) programs: Vec<Vec<Step>>,
    /// The steps of a thread's signal handler, which runs once or not at all.
    pub(crate) handlers: Vec<Vec<Step>>,
    pub(crate) flaw: Flaw,
}

impl Model {
    /// All states that follow from one step of one thread, from a signal, from a wait that is given up, or from the
    /// end of a store buffer's delay.
    pub(crate) fn next(&self, world: &World) -> Vec<World> {
        let mut all = Vec::new();
        for me in 0..world.threads.len() {
            let thread = &world.threads[me];
            let mut add = |change: &dyn Fn(&mut World) -> bool| {
                let mut later = world.clone();
                if change(&mut later) {
                    all.push(later);
                }
            };
            if thread.busy != thread.busy_soon {
                add(&|later| {
                    later.threads[me].busy = thread.busy_soon;
                    true
                });
            }
            add(&|later| self.interrupt(later, me));
            if let Some(step) = self.step(world, me) {
                add(&|later| self.go(later, me, step));
                add(&|later| self.lose_patience(later, me, step));
                add(&|later| self.leave_rest(later, me));
            }
        }
        all
    }

    pub(crate) fn step(&self, world: &World, me: usize) -> Option<Step> {
        let thread = &world.threads[me];
        let steps = if thread.below.is_some() { &self.handlers[me] } else { &self.programs[me] };
        steps.get(thread.frame.step).copied()
    }

    /// A signal arrives between any two accesses, but not under a lock of libc's, which handlers need themselves.
    fn interrupt(&self, world: &mut World, me: usize) -> bool {
        let can_come = !self.handlers[me].is_empty()
            && !world.threads[me].has_handled
            && self.step(world, me).is_some()
            && !world.locks.contains(&(me as u8));
        // Before the thread has arrived, its handler finds no state, and arrives by itself like a thread of its own.
        let is_known = self.step(world, me) != Some(Step::Arrive) || self.flaw == Flaw::IsKnownUncounted;
        if !can_come || !is_known {
            return false;
        }
        let thread = &mut world.threads[me];
        thread.has_handled = true;
        thread.below = Some(core::mem::take(&mut thread.frame));
        true
    }

    /// Ends a wait that has a time limit.
    fn lose_patience(&self, world: &mut World, me: usize, step: Step) -> bool {
        let thread = &mut world.threads[me];
        match (step, thread.frame.at) {
            (Step::ShortPause, At::Begin) => self.done(world, me),
            // A reading may run on top of a fork of its own thread.
            (Step::Pause, At::Begin) if thread.below.is_some() && world.pausing == FORKERS => {
                self.done(world, me);
            }
            (Step::ShortPause, At::Waits) => thread.frame.at = At::GivesUp,
            // A fork may run on top of the step that it waits for.
            (Step::Hold, At::Begin) if thread.below.is_some() && self.flaw != Flaw::WaitsForOwnTurn => {
                thread.depth += 1;
                self.done(world, me);
            }
            (Step::Hold, At::Waits) if thread.below.is_some() => match thread.held {
                Held::OverPause => {
                    thread.held = Held::NotPaused;
                    self.done(world, me);
                }
                _ => thread.frame.at = At::LeavesGate,
            },
            // The wait for a thread that is writing an event down ends as well.
            (_, At::Drains | At::CatchesUp) if self.flaw != Flaw::WaitsForPlace => {
                let Some(Place::Reserved(writer, _)) = world.noted.get(world.drained).copied() else {
                    return false;
                };
                let writer = (writer % HANDLER) as usize;
                assert!(writer != me, "waits for itself: {world:?}");
                if world.threads[writer].below.is_none() {
                    return false;
                }
                world.noted[world.drained] = Place::PassedOver;
                world.is_spoiled = true;
            }
            _ => return false,
        }
        true
    }

    /// Leaves what has not been recorded yet, and the closed gate, to the next thread that comes.
    fn leave_rest(&self, world: &mut World, me: usize) -> bool {
        let next = world.noted.get(world.drained).copied();
        let waits = self.flaw == Flaw::WaitsForPlace && matches!(next, Some(Place::Reserved(..)));
        let leaves = world.threads[me].frame.at == At::Drains && next.is_some() && !waits;
        if leaves {
            world.threads[me].frame.then = Then::Next;
            self.at(world, me, At::EndsBusy);
        }
        leaves
    }

    /// One access of one thread. Returns `false` if it cannot go on now.
    pub(crate) fn go(&self, world: &mut World, me: usize, step: Step) -> bool {
        let own = me as u8;
        let is_handler = world.threads[me].below.is_some();
        match (step, world.threads[me].frame.at) {
            (Step::Lock(lock), At::Begin) => {
                if world.locks[lock as usize] != NO_THREAD {
                    return false;
                }
                world.locks[lock as usize] = own;
                self.done(world, me);
            }
            (Step::Unlock(lock), At::Begin) => {
                world.locks[lock as usize] = NO_THREAD;
                self.done(world, me);
            }
            // enter()
            (Step::Event, At::Begin) if world.threads[me].busy_soon && self.flaw != Flaw::RecordsOnTop => {
                assert!(is_handler, "busy before it begins: {world:?}");
                world.threads[me].skipped += 1;
                self.done(world, me);
            }
            (Step::Event, At::Begin) => {
                // A plain store, which may wait in the buffer.
                world.threads[me].busy_soon = true;
                self.at(world, me, At::BusyStored);
            }
            (Step::Event, At::BusyStored) => {
                self.at(world, me, if world.closed { At::MetGate } else { At::Recording });
                world.threads[me].frame.locked = world.shared;
            }
            (Step::Event, At::Recording) => {
                self.check_recording(world, me);
                world.recorded.push(self.event(world, me));
                self.set_busy(world, me, false);
                self.ended_event(world, me);
            }
            // meet_gate()
            (Step::Event, At::MetGate) => {
                self.set_busy(world, me, false);
                self.at(world, me, At::MayOpen);
            }
            (Step::Event, At::MayOpen) if self.flaw == Flaw::WaitsAtGate => {
                if world.closed {
                    return false;
                }
                self.at(world, me, At::Begin);
            }
            (Step::Event | Step::Arrive, At::MayOpen | At::Announced) => {
                let would_wait = world.threads[me].noting > 0 && self.flaw != Flaw::OpensOverNote;
                if world.pausing == NO_THREAD && !would_wait {
                    world.pausing = own;
                    world.threads[me].frame.then = Then::Retry;
                    self.at(world, me, At::Took);
                } else if step == Step::Event {
                    self.at(world, me, At::Note);
                } else {
                    self.done(world, me);
                }
            }
            // note(): the gate's word says whether the gate is closed and where to write.
            (Step::Event, At::Note) => {
                let (owner, number) = self.event(world, me);
                if !world.closed {
                    self.at(world, me, At::Begin);
                } else if world.is_spoiled && self.flaw != Flaw::KeepsSpoiledQueue {
                    world.dropped.push((owner, number));
                    self.ended_event(world, me);
                } else {
                    world.threads[me].noting += 1;
                    world.threads[me].frame.place = (world.queue, world.noted.len() as u8);
                    world.noted.push(Place::Reserved(owner, number));
                    self.at(world, me, At::Write);
                }
            }
            (Step::Event, At::Write) => {
                let (owner, number) = self.event(world, me);
                let (queue, place) = world.threads[me].frame.place;
                let is_there = queue == world.queue;
                match world.noted.get_mut(place as usize) {
                    Some(place) if is_there && *place == Place::Reserved(owner, number) => {
                        *place = Place::Written(owner, number);
                    }
                    _ => {
                        assert!(!is_there || world.is_spoiled, "writes over another's place: {world:?}");
                        world.dropped.push((owner, number));
                    }
                }
                world.threads[me].noting -= 1;
                self.ended_event(world, me);
            }
            // open_if_abandoned()
            (Step::Event | Step::Arrive, At::Took) => {
                // Only the thread that has the turn opens the gate, so a gate that it sees closed stays closed.
                let goes_on = world.closed || self.flaw == Flaw::TakesOpenForAbandoned;
                self.at(world, me, if goes_on { At::SetsBusy } else { At::EndsTurn });
            }
            (_, At::Looks) => {
                if self.others_are_busy(world, me) {
                    world.threads[me].frame.then = Then::Next;
                    self.at(world, me, At::EndsBusy);
                } else {
                    self.at(world, me, At::Drains);
                }
            }
            // open()
            (_, At::Drains) => return self.drain(world, me, At::Tries),
            (_, At::Tries) => {
                let now = (world.closed, world.newcomer, world.noted.len() as u8);
                let seen = world.threads[me].frame.seen;
                let newcomer_is_known = self.flaw == Flaw::ForgetsNewcomer || now.1 == seen.1;
                let is_same = now.0 == seen.0 && newcomer_is_known && now.2 == seen.2;
                if is_same || self.flaw == Flaw::OpensBlindly {
                    (world.closed, world.newcomer) = (false, false);
                    world.noted.clear();
                    let is_late = self.flaw == Flaw::RestartsLate;
                    self.at(world, me, if is_late { At::EndsBusy } else { At::Restarts });
                } else {
                    self.at(world, me, At::Drains);
                }
                world.threads[me].frame.seen = (false, false, 0);
            }
            (_, At::Restarts | At::RestartsLate) => {
                world.drained = 0;
                if core::mem::take(&mut world.is_spoiled) && self.flaw != Flaw::KeepsSpoiledQueue {
                    world.queue += 1;
                }
                let is_late = world.threads[me].frame.at == At::RestartsLate;
                if is_late { self.went_on(world, me, step) } else { self.at(world, me, At::EndsBusy) }
            }
            (_, At::EndsBusy) => {
                self.set_busy(world, me, self.flaw == Flaw::KeepsBusy);
                self.at(world, me, At::EndsTurn);
            }
            (_, At::EndsTurn) => {
                world.pausing = NO_THREAD;
                if self.flaw == Flaw::RestartsLate {
                    self.at(world, me, At::RestartsLate);
                } else {
                    self.went_on(world, me, step);
                }
            }
            // pause()
            (Step::Pause | Step::ShortPause, At::Begin) => {
                let is_own_turn = world.pausing == own && self.flaw != Flaw::WaitsForOwnTurn;
                let thread = &world.threads[me];
                let would_wait = thread.noting > 0 && self.flaw != Flaw::OpensOverNote;
                if is_handler && (thread.busy_soon || is_own_turn || would_wait) {
                    self.done(world, me);
                    return true;
                }
                if self.flaw == Flaw::BusyBeforeTurn && !world.threads[me].busy_soon {
                    self.set_busy(world, me, true);
                    return true;
                }
                if world.pausing != NO_THREAD {
                    return false;
                }
                world.pausing = own;
                self.at(world, me, At::SetsBusy);
            }
            (_, At::SetsBusy) => {
                self.set_busy(world, me, true);
                let at = match step {
                    Step::Pause | Step::ShortPause => At::Closes,
                    Step::Release => At::Drains,
                    _ => At::Barrier,
                };
                self.at(world, me, at);
            }
            // give_up()
            (_, At::GivesUp) => {
                self.set_busy(world, me, false);
                self.at(world, me, At::LeavesGate);
            }
            (_, At::LeavesGate) => {
                if self.flaw == Flaw::GivesUpBlindly || !world.newcomer && world.noted.is_empty() {
                    world.closed = false;
                    world.noted.clear();
                }
                self.at(world, me, At::LeavesTurn);
            }
            (_, At::LeavesTurn) => {
                world.threads[me].held = Held::NotPaused;
                let pauser = if step == Step::ShortPause { own } else { FORKERS };
                if world.pausing == pauser && self.flaw != Flaw::KeepsTurn {
                    world.pausing = NO_THREAD;
                }
                self.done(world, me);
            }
            // hold_for_fork() and join_forks()
            (Step::Hold, At::Begin) => return self.hold(world, me),
            (_, At::Closes) => {
                world.closed = true;
                self.at(world, me, At::Barrier);
            }
            (_, At::Barrier) => {
                self.barrier(world);
                let is_a_look = matches!(step, Step::Event | Step::Arrive);
                self.at(world, me, if is_a_look { At::Looks } else { At::Waits });
            }
            (_, At::Waits) => {
                if self.others_are_busy(world, me) {
                    return false;
                }
                if step != Step::Hold {
                    let at_once = self.flaw == Flaw::ReadsAtOnce;
                    self.at(world, me, if at_once { At::Reading } else { At::CatchesUp });
                    return true;
                }
                if world.threads[me].held == Held::Paused {
                    if world.threads[me].busy_soon && self.flaw != Flaw::JoinsOverRecording {
                        world.threads[me].held = Held::OverRecording;
                    } else {
                        world.forks = 1;
                    }
                }
                world.threads[me].is_forking = true;
                self.done(world, me);
            }
            (Step::Pause | Step::ShortPause, At::CatchesUp) => {
                return self.drain(world, me, At::Reading);
            }
            (Step::Pause | Step::ShortPause, At::Reading) => {
                self.check_pause(world, me);
                self.check_figures(world, me);
                self.at(world, me, At::Drains);
            }
            // release_after_fork()
            (Step::Release, At::Begin) => {
                let thread = &mut world.threads[me];
                thread.depth -= 1;
                if thread.depth > 0 {
                    self.done(world, me);
                    return true;
                }
                thread.is_forking = false;
                let ends = match core::mem::take(&mut thread.held) {
                    Held::Paused => {
                        world.forks -= 1;
                        world.forks == 0
                    }
                    Held::OverRecording => true,
                    held => held == Held::OverPause && self.flaw == Flaw::EndsPauseBelow,
                };
                if ends { self.at(world, me, At::Last) } else { self.done(world, me) }
            }
            (Step::Release, At::Last) => {
                let thread = &world.threads[me];
                let was_recording = thread.busy_soon
                    && self.flaw != Flaw::OpensOverRecording
                    && self.flaw != Flaw::EndsPauseBelow;
                let was_noting = thread.noting > 0 && self.flaw != Flaw::OpensOverNote;
                self.at(world, me, if was_recording || was_noting { At::LeavesGate } else { At::SetsBusy });
            }
            // first_call() and announce()
            (Step::Arrive, At::Begin) => {
                world.crowd += 1;
                self.at(world, me, At::Counted);
            }
            (Step::Arrive, At::Counted) => {
                if world.crowd < 2 || world.shared {
                    self.done(world, me);
                } else {
                    (world.closed, world.newcomer) = (true, true);
                    self.at(world, me, At::Announced);
                }
            }
            (step, at) => unreachable!("{step:?} at {at:?}"),
        }
        true
    }

    fn hold(&self, world: &mut World, me: usize) -> bool {
        let thread = &mut world.threads[me];
        if thread.depth > 0 {
            // The handler runs on top of a fork of this thread.
            thread.depth += 1;
            self.done(world, me);
        } else if world.pausing == me as u8 && self.flaw != Flaw::WaitsForOwnTurn {
            (thread.depth, thread.held) = (1, Held::OverPause);
            let closes = self.flaw != Flaw::ForksOverOpenGate;
            self.at(world, me, if closes { At::Closes } else { At::Barrier });
        } else if world.forks > 0 {
            (thread.depth, thread.held, thread.is_forking) = (1, Held::Paused, true);
            world.forks += 1;
            self.done(world, me);
        } else if world.pausing == NO_THREAD {
            (thread.depth, thread.held) = (1, Held::Paused);
            world.pausing = FORKERS;
            self.at(world, me, At::Closes);
        } else {
            return false;
        }
        true
    }

    /// Records the events that were written down. All complete ones count as one access.
    fn drain(&self, world: &mut World, me: usize, next: At) -> bool {
        self.check_pause(world, me);
        if world.threads[me].frame.seen.2 == 0 || self.flaw != Flaw::ForgetsNewcomer {
            world.shared |= world.crowd > 1;
        }
        while let Some(place) = world.noted.get(world.drained) {
            match *place {
                Place::Reserved(..) => return false,
                Place::Written(owner, number) => world.recorded.push((owner, number)),
                Place::PassedOver => {}
            }
            world.drained += 1;
        }
        world.threads[me].frame.seen = (world.closed, world.newcomer, world.noted.len() as u8);
        self.at(world, me, next);
        true
    }

    pub(crate) fn event(&self, world: &World, me: usize) -> (u8, u8) {
        let thread = &world.threads[me];
        let owner = if thread.below.is_some() { me as u8 + HANDLER } else { me as u8 };
        (owner, thread.frame.event)
    }

    fn at(&self, world: &mut World, me: usize, at: At) {
        world.threads[me].frame.at = at;
    }

    /// The turn is over, and the thread continues.
    fn went_on(&self, world: &mut World, me: usize, step: Step) {
        match (step, world.threads[me].frame.then) {
            (Step::Event, Then::Retry) => self.at(world, me, At::Begin),
            (Step::Event, Then::Next) => self.at(world, me, At::Note),
            _ => self.done(world, me),
        }
    }

    fn done(&self, world: &mut World, me: usize) {
        let is_handler = world.threads[me].below.is_some();
        let thread = &mut world.threads[me];
        thread.frame = Frame { step: thread.frame.step + 1, event: thread.frame.event, ..Frame::default() };
        if is_handler && thread.frame.step == self.handlers[me].len() {
            thread.frame = thread.below.take().unwrap_or_default();
        }
    }

    fn ended_event(&self, world: &mut World, me: usize) {
        world.threads[me].frame.event += 1;
        self.done(world, me);
    }

    /// A store that is followed by one which all threads see in order.
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
}
