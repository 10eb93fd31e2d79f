//! During a pause no thread is busy, a thread that was in the middle of recording has finished, and all threads go on
//! afterwards.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use memintro_tracker::counters::CounterCache;
use memintro_tracker::deferred::{Effort, Event};
use memintro_tracker::threads::{Held, Noted, Settle, ThreadState, Threads, Traffic, bump};

fn threads() -> Threads {
    let threads = Threads::new();
    threads.register();
    threads
}

#[test]
fn a_thread_is_busy_once() {
    let threads = threads();
    // SAFETY: states are never unmapped.
    let own = unsafe { threads.acquire().unwrap().as_ref() };
    let busy = threads.enter(own).unwrap();
    assert!(threads.enter(own).is_none());
    assert!(threads.pause(own).is_none());
    drop(busy);
    assert!(threads.enter(own).is_some());
}

#[test]
fn a_released_state_serves_again_and_its_traffic_stays_where_it_is() {
    let threads = threads();
    let first = threads.acquire().unwrap();
    // SAFETY: states are never unmapped.
    let state = unsafe { first.as_ref() };
    bump(&state.traffic.allocated_bytes, 100);
    state.untracked.set(3);
    threads.release(state);
    assert_eq!(threads.acquire(), Some(first));
    assert_eq!(state.untracked.get(), 0);
    bump(&state.traffic.allocated_bytes, 11);
    assert_eq!(state.traffic.allocated_bytes.load(Ordering::Relaxed), 111);
    assert_eq!(state.inherited.allocated_bytes.load(Ordering::Relaxed), 100);
    threads.reset_traffic();
    assert_eq!(state.inherited.allocated_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_pause_sees_whole_operations_only() {
    let threads = &threads();
    let (left, right) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                // SAFETY: states are never unmapped.
                let own = unsafe { threads.acquire().unwrap().as_ref() };
                while !done.load(Ordering::Relaxed) {
                    // No thread waits during a pause.
                    let Some(busy) = threads.enter(own) else { continue };
                    left.fetch_add(1, Ordering::Relaxed);
                    right.fetch_add(1, Ordering::Relaxed);
                    drop(busy);
                }
                threads.release(own);
            });
        }
        // SAFETY: states are never unmapped.
        let own = unsafe { threads.acquire().unwrap().as_ref() };
        let mut torn = 0;
        let (mut pauses, mut seen) = (0, 0);
        // Makes some hundred pauses, and more until the threads have recorded between them.
        while pauses < 500 || seen < 10_000 {
            let paused = threads.pause(own).unwrap();
            seen = left.load(Ordering::Relaxed);
            torn += u32::from(seen != right.load(Ordering::Relaxed));
            drop(paused);
            pauses += 1;
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(torn, 0);
    });
}

#[test]
fn one_pause_at_a_time() {
    let threads = &threads();
    struct Guarded(Cell<u64>);
    // SAFETY: the value is changed only during a pause, which is what this test checks.
    unsafe impl Sync for Guarded {}
    let counter = &Guarded(Cell::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let counter = counter;
                // SAFETY: states are never unmapped.
                let own = unsafe { threads.acquire().unwrap().as_ref() };
                for _ in 0..500 {
                    let paused = threads.pause(own).unwrap();
                    counter.0.set(counter.0.get() + 1);
                    drop(paused);
                }
                threads.release(own);
            });
        }
    });
    assert_eq!(counter.0.get(), 2000);
}

#[test]
fn a_limited_pause_gives_up_on_a_thread_that_stays_busy() {
    let threads = &threads();
    let (stuck, done) = (&AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: states are never unmapped.
            let own = unsafe { threads.acquire().unwrap().as_ref() };
            let busy = threads.enter(own);
            stuck.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(busy);
        });
        while !stuck.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: states are never unmapped.
        let own = unsafe { threads.acquire().unwrap().as_ref() };
        assert!(threads.pause_for(own, 20).is_none());
        assert!(threads.enter(own).is_some(), "the gate is open again");
        done.store(true, Ordering::Release);
        assert!(threads.pause(own).is_some(), "and a patient pause succeeds");
    });
}

#[test]
fn figures_are_never_of_two_lives() {
    let threads = &threads();
    let (done, torn) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: states are never unmapped.
            let own = unsafe { threads.acquire().unwrap().as_ref() };
            while !done.load(Ordering::Relaxed) {
                for _ in 0..50 {
                    let Some(busy) = threads.enter(own) else { continue };
                    bump(&own.traffic.allocations, 1);
                    bump(&own.traffic.frees, 1);
                    drop(busy);
                }
                let paused = threads.pause(own).unwrap();
                threads.reset_traffic();
                drop(paused);
            }
            threads.release(own);
        });
        let sum = |figure: fn(&Traffic) -> &AtomicU64| -> u64 {
            threads.states().map(|state| figure(&state.traffic).load(Ordering::Relaxed)).sum()
        };
        for _ in 0..200_000 {
            let (frees, allocations) = threads.between_resets(|| {
                let frees = sum(|traffic| &traffic.frees);
                fence(Ordering::SeqCst);
                (frees, sum(|traffic| &traffic.allocations))
            });
            torn.fetch_add(u64::from(frees > allocations), Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(torn.load(Ordering::Relaxed), 0);
}

/// Counts the events that are recorded, and the threads whose counters are added to the sites.
#[derive(Default)]
struct Counting(AtomicU64, AtomicU64);

#[allow(improper_ctypes_definitions, reason = "see the trait")]
impl Settle for Counting {
    extern "C" fn settle(&self) {}
    extern "C" fn is_unusual(&self) -> bool {
        false
    }
    extern "C" fn flush(&self, _counters: &CounterCache) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn torn(&self) {}
    extern "C" fn record(&self, _own: &ThreadState, _event: &Event, _path: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting() -> (Threads, &'static Counting) {
    let (threads, counts): (_, &'static Counting) = (threads(), Box::leak(Box::default()));
    // SAFETY: no thread has a state yet.
    unsafe { threads.settle_with(counts) };
    (threads, counts)
}

/// 1,000 events were written down during a fork that has ended in this thread, the first.
fn after_a_fork(test: impl FnOnce(&Threads, &ThreadState, &dyn Fn() -> u64)) {
    let (threads, recorded) = counting();
    threads.deferred.init();
    // SAFETY: states are never unmapped.
    let (own, other) = unsafe { (threads.acquire().unwrap().as_ref(), threads.acquire().unwrap().as_ref()) };
    let held = threads.hold_for_fork(own, 0, 0, || {});
    assert_eq!(held, Held::Paused);
    for _ in 0..1_000 {
        assert!(threads.enter(other).is_none());
        assert_eq!(threads.note(other, &Event::default(), &[]), Noted::Down);
    }
    threads.release_after_fork(own, held, Effort::Brief, || {});
    test(&threads, other, &|| recorded.0.load(Ordering::Relaxed));
}

#[test]
fn a_fork_and_each_event_after_it_record_some_of_what_was_written_down() {
    after_a_fork(|threads, other, recorded| {
        assert_eq!(recorded(), 256);
        assert!(threads.is_closed());
        let entered: Vec<_> = (0..3).map(|_| (threads.enter(other).is_some(), recorded())).collect();
        assert_eq!(entered, [(false, 512), (false, 768), (true, 1_000)]);
        assert!(!threads.is_closed());
    });
}

#[test]
fn a_reading_after_a_fork_has_all_that_was_written_down() {
    after_a_fork(|threads, other, recorded| {
        let paused = threads.pause(other).unwrap();
        assert_eq!(recorded(), 1_000);
        drop(paused);
        assert!(!threads.is_closed());
    });
}

#[test]
fn a_thread_catches_up_with_all_that_was_written_down() {
    after_a_fork(|threads, other, recorded| {
        threads.catch_up(other);
        assert_eq!((recorded(), threads.is_closed()), (1_000, false));
    });
}

#[test]
fn a_forked_child_takes_the_counters_of_other_threads_back_where_their_states_are_used_again() {
    let (threads, counts) = counting();
    // SAFETY: states are never unmapped.
    let (own, other) = unsafe { (threads.acquire().unwrap().as_ref(), threads.acquire().unwrap().as_ref()) };
    bump(&other.traffic.allocations, 5);
    other.untracked.set(3);
    let held = threads.hold_for_fork(own, 0, 0, || {});
    threads.forget_others(Some(own), held);
    threads.release_after_fork(own, held, Effort::Whole, || {});
    assert!(!other.is_owned());
    assert_eq!((other.untracked.get(), counts.1.load(Ordering::Relaxed)), (0, 0));
    let paused = threads.pause(own).unwrap();
    // No thread may count while the world is paused, so another state is used.
    let next = threads.acquire().unwrap();
    assert_ne!(next.as_ptr().cast_const(), core::ptr::from_ref(other));
    drop(paused);
    assert_eq!(threads.acquire().unwrap().as_ptr().cast_const(), core::ptr::from_ref(other));
    assert_eq!(counts.1.load(Ordering::Relaxed), 1);
    assert_eq!(other.inherited.allocations.load(Ordering::Relaxed), 5);
}

/// How a fork finds the world that begins while another thread is busy: that thread does this until the fork is over, or for so
/// long, in which a fork gives up.
fn held_beside(busily: fn(), most: Duration) -> Held {
    let threads = &threads();
    let (is_busy, is_over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: states are never unmapped.
            let own = unsafe { threads.acquire().unwrap().as_ref() };
            let busy = threads.enter(own);
            is_busy.store(true, Ordering::Release);
            let begin = std::time::Instant::now();
            while !is_over.load(Ordering::Acquire) && begin.elapsed() < most {
                busily();
            }
            drop(busy);
        });
        while !is_busy.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: states are never unmapped.
        let own = unsafe { threads.acquire().unwrap().as_ref() };
        let held = threads.hold_for_fork(own, 3_000, 3_000, || {});
        is_over.store(true, Ordering::Release);
        threads.release_after_fork(own, held, Effort::Brief, || {});
        held
    })
}

#[test]
fn a_fork_gives_up_on_a_thread_that_sleeps_and_not_on_one_that_wants_a_processor() {
    let sleeps = || std::thread::sleep(Duration::from_millis(50));
    assert_eq!(held_beside(sleeps, Duration::MAX), Held::NotPaused);
    assert_eq!(held_beside(std::hint::spin_loop, Duration::from_secs(1)), Held::Paused);
}
