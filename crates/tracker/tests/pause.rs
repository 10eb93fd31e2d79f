//! During a pause no thread is busy, a thread that was in the middle of recording has finished, and all threads go on
//! afterwards.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use memintro_tracker::threads::{Threads, Traffic, bump};

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
