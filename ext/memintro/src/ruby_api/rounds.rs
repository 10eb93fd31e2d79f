//! `Memintro::Native::Rounds`: a measurement of the calling thread in which a block runs again and again, and that is read
//! while it goes on.
//!
//! Blocks and objects are told apart by the *moment* of their birth ([`memintro_abi::MeasureFigures::moment`], and that of
//! [`crate::measure::objects`]). A round begins at a pair of moments, so one collection at the end tells for all rounds
//! what is left of each.
//!
//! Everything here is called while what the thread does is hidden; only the runs of the block are shown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;

use magnus::block::Proc;
use magnus::rb_sys::AsRawValue;
use magnus::{Error, RArray, RClass, RModule, Ruby, Value, function, method, prelude::*};
use memintro_abi::{BirthRecord, BlockRecord, MeasureFigures, MeasuredSite, Status};
use rb_sys::VALUE;

use super::heap::checked;
use super::measure::{self, Malloc, SiteFigures};
use super::names;
use super::native::visit_each;
use super::{errors, tracking_hold};
use crate::heap::{self, fibers};
use crate::measure::{objects, stack};
use crate::object_events;

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Rounds", ruby.class_object())?;
    super::know_class::<Rounds>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(Rounds::new, 2))?;
    class.define_method("begin", method!(Rounds::begin, 0))?;
    class.define_method("run", method!(Rounds::run, 2))?;
    class.define_method("moment", method!(Rounds::moment, 0))?;
    class.define_method("allocated", method!(Rounds::allocated, 0))?;
    class.define_singleton_method("collect", function!(Rounds::collect, 0))?;
    class.define_method("left", method!(Rounds::left, 1))?;
    class.define_method("count", method!(Rounds::count, 2))?;
    class.define_method("sites", method!(Rounds::sites, 2))?;
    class.define_method("objects", method!(Rounds::objects, 2))?;
    class.define_method("problem", method!(Rounds::problem, 0))?;
    class.define_method("end", method!(Rounds::end, 0))
}

struct State {
    most_sites: u32,
    most_bytes: u64,
    under_way: Option<UnderWay>,
    is_lost: bool,
}

struct UnderWay {
    thread: libc::pthread_t,
    malloc: Malloc,
    objects: objects::Counts,
}

#[magnus::wrap(class = "Memintro::Native::Rounds", free_immediately)]
struct Rounds(RefCell<State>);

/// What is left of a round.
#[derive(Clone, Copy, Default)]
struct Left {
    blocks: u64,
    bytes: u64,
    objects: u64,
    object_bytes: u64,
    stack_bytes: u64,
}

impl Rounds {
    /// Limits of tracking, if nothing is tracked yet.
    fn new(most_sites: u32, most_bytes: u64) -> Self {
        Self(RefCell::new(State { most_sites, most_bytes, under_way: None, is_lost: false }))
    }

    /// Turns on what is needed. False if this Ruby does not tell of objects.
    fn begin(ruby: &Ruby, own: &Self) -> Result<bool, Error> {
        let mut state = own.0.borrow_mut();
        let (api, had) = tracking_hold::take(ruby, state.most_sites, state.most_bytes)?;
        let give_back = |error| {
            let _ = tracking_hold::give_back(ruby, api);
            error
        };
        let Some(begun) = objects::begin(ruby).map_err(give_back)? else {
            tracking_hold::give_back(ruby, api)?;
            return Ok(false);
        };
        // The depth of untracked sections without this one.
        let depth = measure::show_own();
        let malloc = Malloc::begin(api, had, depth);
        measure::hide_own();
        match malloc {
            Ok(malloc) => {
                objects::details();
                // SAFETY: asks for the calling thread.
                let thread = unsafe { libc::pthread_self() };
                state.under_way = Some(UnderWay { thread, malloc, objects: begun });
                Ok(true)
            }
            Err(status) => {
                objects::close(&begun, &begun);
                Err(give_back(measure::refusal(ruby, status)))
            }
        }
    }

    /// Calls the block so many times, and drops its values. Only this is measured.
    fn run(ruby: &Ruby, own: &Self, block: Proc, count: usize) -> Result<(), Error> {
        own.with(ruby, |_| Ok(()))?;
        measure::show_own();
        let outcome = stack::deeper(|| (0..count).try_for_each(|_| block.call::<_, Value>(()).map(|_| ())));
        measure::hide_own();
        outcome
    }

    /// The two moments of now. What is born from here on is not before them.
    fn moment(ruby: &Ruby, own: &Self) -> Result<(u32, u32), Error> {
        own.with(ruby, |state| Ok((state.figures()?.moment, objects::now().moment)))
    }

    /// What the thread has allocated so far: bytes, blocks, objects, and bytes of their slots.
    fn allocated(ruby: &Ruby, own: &Self) -> Result<(u64, u64, u64, u64), Error> {
        own.with(ruby, |state| {
            let (now, made) = (state.figures()?, objects::now());
            let begun = &state.malloc.begun.thread;
            Ok((
                now.thread.allocated_bytes - begun.allocated_bytes,
                now.thread.allocations.value - begun.allocations.value,
                made.made - state.objects.made,
                made.made_bytes - state.objects.made_bytes,
            ))
        })
    }

    /// Collects all garbage, and what only leftovers of [`Rounds::run`] on the machine stack seem to hold.
    fn collect() -> Result<(), Error> {
        stack::clear();
        measure::collect_garbage()
    }

    /// For each of these pairs of moments, in their order, what was born from there on and before the next one and lives:
    /// blocks, bytes, objects, bytes of their slots, and resident bytes of the stacks of fibers among them.
    fn left(ruby: &Ruby, own: &Self, rounds: Vec<(u32, u32)>) -> Result<RArray, Error> {
        let first = rounds.first().map_or(0, |round| round.1);
        // SAFETY: live objects.
        if live_objects(first).iter().any(|(object, _)| unsafe { fibers::is_fiber(*object) }) {
            fibers::learn(ruby);
        }
        let stacks = fibers::Stacks::open();
        let sums = own.with(ruby, |state| {
            let mut sums = vec![Left::default(); rounds.len()];
            let ends = rounds.iter().skip(1).map(|round| Some(round.0)).chain([None]);
            for ((sum, round), end) in sums.iter_mut().zip(&rounds).zip(ends) {
                state.each_block(round.0, end, |birth| {
                    sum.blocks += 1;
                    sum.bytes += birth.size;
                })?;
            }
            objects::each_left(first, |object, moment, _| {
                // Rounds are in order, and moments may wrap.
                let since = |round: &(u32, u32)| round.1.wrapping_sub(first);
                let at = rounds.partition_point(|round| since(round) <= moment.wrapping_sub(first));
                if let Some(sum) = at.checked_sub(1).and_then(|at| sums.get_mut(at)) {
                    sum.objects += 1;
                    sum.object_bytes += slot_bytes(object) as u64;
                    // SAFETY: a live object, and nothing of Ruby's runs in here.
                    let is_fiber = stacks.is_some() && unsafe { fibers::is_fiber(object) };
                    if let Some(stacks) = stacks.as_ref().filter(|_| is_fiber) {
                        // SAFETY: as above.
                        sum.stack_bytes += unsafe { stacks.bytes(object) };
                    }
                }
            });
            Ok(sums)
        })?;
        let rows = ruby.ary_new_capa(sums.len());
        for sum in sums {
            rows.push((sum.blocks, sum.bytes, sum.objects, sum.object_bytes, sum.stack_bytes))?;
        }
        Ok(rows)
    }

    /// How many objects of these classes, or of classes below, were made since the moment and live.
    fn count(ruby: &Ruby, own: &Self, from: (u32, u32), classes: RArray) -> Result<usize, Error> {
        let wanted: Vec<VALUE> = (0..classes.len())
            .map(|at| classes.entry::<RClass>(at.cast_signed()).map(|class| class.as_raw() as VALUE))
            .collect::<Result<_, _>>()?;
        own.with(ruby, |_| Ok(()))?;
        let addresses = live_objects(from.1);
        // SAFETY: live objects, and nothing of Ruby's has run since they were listed.
        checked(ruby, unsafe {
            heap::find::count_of(addresses.iter().map(|(object, _)| *object as usize), &wanted)
        })
    }

    /// Call sites of blocks that were born since the moment and live: those with most bytes, as rows of kind, name, line,
    /// and four figures, of which the last two are blocks and bytes.
    fn sites(ruby: &Ruby, own: &Self, from: (u32, u32), most: usize) -> Result<RArray, Error> {
        let sums = own.with(ruby, |state| {
            let mut sums: HashMap<u32, SiteFigures> = HashMap::new();
            state.each_block(from.0, None, |birth| {
                let sum = sums.entry(birth.site).or_default();
                sum.retained_blocks += 1;
                sum.retained_bytes += birth.size;
            })?;
            Ok(sums)
        })?;
        measure::site_rows(ruby, &sums, most)
    }

    /// Objects that were made since the moment and live, by line and class, those with most bytes first: path, line, name
    /// of the class, objects, bytes of their slots, and addresses of ten of them at most.
    fn objects(ruby: &Ruby, own: &Self, from: (u32, u32), most: usize) -> Result<RArray, Error> {
        own.with(ruby, |_| Ok(()))?;
        let live = live_objects(from.1);
        let records: Vec<BlockRecord> = live.iter().map(|(object, line)| record(*object, *line)).collect();
        // SAFETY: live objects, and nothing of Ruby's has run since they were listed.
        let sums = unsafe { heap::tracked::by_class(&records, |_| true) };
        let mut sums: Vec<_> = checked(ruby, sums)?.into_iter().collect();
        sums.sort_by(|(one, this), (other, that)| {
            that.bytes.sum().value.cmp(&this.bytes.sum().value).then_with(|| one.cmp(other))
        });
        sums.truncate(most);
        let mut examples: HashMap<(u32, Vec<u8>), Vec<u64>> = HashMap::new();
        for (object, line) in live.iter().rev().filter(|(_, line)| sums.iter().any(|((of, _), _)| of == line))
        {
            let name = checked(ruby, heap::find::described(*object as VALUE))?.into_bytes();
            let found = examples.entry((*line, name)).or_default();
            if found.len() < EXAMPLES {
                found.push(*object);
            }
        }
        let rows = ruby.ary_new_capa(sums.len());
        for ((line, name), sum) in sums {
            let (path, number) = objects::line_text(line);
            let addresses = examples.remove(&(line, name.clone())).unwrap_or_default();
            rows.push((
                names::string(ruby, &path),
                number,
                names::string(ruby, &name),
                sum.objects.sum().value,
                sum.bytes.sum().value,
                ruby.ary_from_vec(addresses),
            ))?;
        }
        Ok(rows)
    }

    /// Why the figures of malloc cannot be believed, as a Symbol; and how many blocks could not be followed.
    fn problem(ruby: &Ruby, own: &Self) -> Result<(Option<Value>, u64), Error> {
        let is_lost = own.0.borrow().is_lost;
        let found = own.with(ruby, |state| {
            // Who has stopped tracking has also made the figures unreadable.
            let problem = measure::problem(&state.malloc, false).or_else(|| is_lost.then_some("lost"));
            if problem.is_some() {
                return Ok((problem, 0));
            }
            let (now, begun) = (state.figures()?, &state.malloc.begun);
            Ok((None, (now.process.dropped - begun.process.dropped) + (now.lost - begun.lost)))
        });
        match found {
            Ok((problem, dropped)) => Ok((problem.map(|name| ruby.sym_new(name).as_value()), dropped)),
            Err(_) => Ok((Some(ruby.sym_new("lost").as_value()), 0)),
        }
    }

    /// Turns off what was turned on. Nothing happens if it has not begun, or has ended.
    fn end(ruby: &Ruby, own: &Self) -> Result<(), Error> {
        let Some(state) = own.0.borrow_mut().under_way.take() else { return Ok(()) };
        let api = state.malloc.api;
        // SAFETY: asks for the calling thread.
        if state.thread == unsafe { libc::pthread_self() } {
            let mut ended = MeasureFigures::default();
            visit_each(
                // SAFETY: valid records; the callback fits, the context outlives the visit.
                |context, call| unsafe {
                    (api.measure_end)(&raw const state.malloc.begun, &raw mut ended, context, call)
                },
                |_: &MeasuredSite| (),
            );
            visit_each(
                // SAFETY: as above. From the end to the end: nothing is visited.
                |context, call| unsafe {
                    (api.measure_close)(&raw const ended, &raw const ended, context, call)
                },
                |_: &BirthRecord| (),
            );
            objects::end_of_details();
            objects::close(&state.objects, &state.objects);
        }
        tracking_hold::give_back(ruby, api)
    }

    /// Does this with the measurement, which is under way in this thread.
    fn with<R>(&self, ruby: &Ruby, work: impl FnOnce(&UnderWay) -> Result<R, Status>) -> Result<R, Error> {
        let mut state = self.0.borrow_mut();
        // SAFETY: asks for the calling thread.
        let here = unsafe { libc::pthread_self() };
        let Some(under_way) = state.under_way.as_ref().filter(|state| state.thread == here) else {
            return Err(errors::error(ruby, "Error", "these rounds are not under way in this thread"));
        };
        work(under_way).map_err(|status| {
            state.is_lost = true;
            errors::from_status(ruby, status)
        })
    }
}

/// Objects of each line and class whose addresses are shown.
const EXAMPLES: usize = 10;

impl UnderWay {
    /// The figures of this moment: those of a measurement within this one, which begins and ends.
    fn figures(&self) -> Result<MeasureFigures, Status> {
        let begun = self.begin_inner()?;
        self.close_inner(begun, begun.moment, Some(begun.moment), |_| ())?;
        Ok(begun)
    }

    /// Visits the thread's blocks that were born between two moments and are live; without the second, until now.
    fn each_block(
        &self,
        from: u32,
        until: Option<u32>,
        mut visit: impl FnMut(&BirthRecord),
    ) -> Result<(), Status> {
        let owner = self.malloc.begun.owner;
        self.close_inner(self.begin_inner()?, from, until, |birth| {
            if birth.owner == owner {
                visit(birth);
            }
        })
    }

    fn begin_inner(&self) -> Result<MeasureFigures, Status> {
        let mut begun = MeasureFigures::default();
        // SAFETY: a valid record.
        let status = unsafe { (self.malloc.api.measure_begin)(&raw mut begun) };
        if status.0 < 0 { Err(status) } else { Ok(begun) }
    }

    /// Ends that measurement, and visits what was born between moments that may be before its own.
    fn close_inner(
        &self,
        begun: MeasureFigures,
        from: u32,
        until: Option<u32>,
        visit: impl FnMut(&BirthRecord),
    ) -> Result<(), Status> {
        let api = self.malloc.api;
        let mut ended = begun;
        let end = |context: *mut c_void, call| {
            // SAFETY: valid records; the callback fits, the context outlives the visit.
            unsafe { (api.measure_end)(&raw const begun, &raw mut ended, context, call) }
        };
        let status = visit_each(end, |_: &MeasuredSite| ());
        let from = MeasureFigures { moment: from, ..begun };
        let until = MeasureFigures { moment: until.unwrap_or(ended.moment), ..begun };
        let close = |context: *mut c_void, call| {
            // SAFETY: as above.
            unsafe { (api.measure_close)(&raw const from, &raw const until, context, call) }
        };
        let closed = visit_each(close, visit);
        if status.0 < 0 {
            Err(status)
        } else if closed.0 < 0 {
            Err(closed)
        } else {
            Ok(())
        }
    }
}

/// Bytes of the slot of a live object.
fn slot_bytes(object: u64) -> usize {
    // SAFETY: it is in its slot.
    object_events::found().map_or(0, |events| unsafe { events.slot_bytes(object) })
}

/// Address and line of each object of this thread that was made since the moment and lives.
fn live_objects(from: u32) -> Vec<(u64, u32)> {
    let mut live = Vec::new();
    objects::each_left(from, |object, _, line| live.push((object, line)));
    live
}

fn record(object: u64, line: u32) -> BlockRecord {
    BlockRecord { address: object, size: slot_bytes(object) as u64, site: line, age: 0, weight: 1.0 }
}
