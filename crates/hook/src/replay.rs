//! Records the queued events ([`crate::defer`]), in order, when the gate opens.

use core::sync::atomic::Ordering;

use memintro_abi::SITE_OTHER;
use memintro_tracker::counters::CounterCache;
use memintro_tracker::deferred::Event;
use memintro_tracker::samples::{Drawn, Sample};
use memintro_tracker::sites::Place;
use memintro_tracker::table::Removed;
use memintro_tracker::threads::{Settle, ThreadState, bump};

use crate::apply::{self, Lookup, Origin};
use crate::defer::{kind, site_by};
use crate::in_band;
use crate::in_full;
use crate::pending::Pending;
use crate::sampling::{self, SAMPLES};
use crate::shared::{self, ACTIVE, EPOCH, SITES};
use crate::thread;

/// What the hook does when the gate opens.
#[derive(Debug)]
pub(crate) struct Opening;

#[allow(improper_ctypes_definitions, reason = "see the trait")]
impl Settle for Opening {
    extern "C" fn settle(&self) {
        thread::share_if_crowded();
    }

    extern "C" fn is_unusual(&self) -> bool {
        in_full::is_unusual()
    }

    extern "C" fn flush(&self, counters: &CounterCache) {
        counters.flush(|id| SITES.counters(id));
    }

    extern "C" fn torn(&self) {
        shared::give_up();
    }

    extern "C" fn record(&self, own: &ThreadState, event: &Event, path: &[u8]) {
        record_event(own, event, path);
        match event.kind {
            kind::FREE | kind::DEATH | kind::SAMPLED_DEATH => {}
            // SAFETY: its owner has given it up, and has left it to the thread that records this.
            kind::FREE_WITH_RECORD => unsafe { in_band::give_back_later(event.address as usize) },
            _ => Pending::end(),
        }
    }
}

fn record_event(own: &ThreadState, event: &Event, path: &[u8]) {
    // Events before a clear are forgotten with all other figures. A stop has recorded the events that were
    // queued before it; the rest came later, from threads that had seen tracking on.
    if event.epoch != EPOCH.load(Ordering::Relaxed)
        || ACTIVE.load(Ordering::Relaxed) == 0
        || shared::is_lost()
    {
        return;
    }
    // SAFETY: states are never unmapped, and the world is paused.
    let Some(owner) = (unsafe { (event.owner as *const ThreadState).as_ref() }) else { return };
    let origin = Origin { owner, counters: &own.counters, owns: false, writes: false };
    let address = event.address as usize;
    let removed = || Removed { site: event.site, size: event.size, age: event.extra };
    let sample = || Sample {
        size: event.size,
        mean: event.mean,
        site: event.site,
        birth: event.line,
        mark: event.extra,
        drawn: Drawn::Bytes,
    };
    match event.kind {
        kind::BIRTH => {
            // A due sample is ignored, because the stack that runs now is another one.
            let _ = apply::born(origin, address, event.size, site(event, path), event.generation);
            if sampling::is_on() {
                // The mode has changed since.
                SAMPLES.count_again(address);
            }
        }
        // It was drawn before a start that does not sample.
        kind::SAMPLED_BIRTH if !sampling::has_estimates() => {}
        kind::SAMPLED_BIRTH => {
            let site = site(event, path);
            apply::born_sampled(origin, address, event.size, site, event.generation, event.mean);
        }
        kind::UNTRACKED_BIRTH => apply::born_untracked(origin, address, event.generation),
        kind::FREE | kind::FREE_WITH_RECORD => {
            let old = apply::take(address, event.generation);
            apply::unnote(address);
            apply::gone(origin, &old, event.generation);
        }
        kind::DEATH => {
            owner.end_move();
            apply::gone(origin, &Lookup::Followed(removed()), event.generation);
        }
        kind::SAMPLED_DEATH => apply::gone(origin, &Lookup::Sampled(sample()), event.generation),
        kind::PUT_BACK => {
            owner.end_move();
            apply::put_back(origin, &Lookup::Followed(removed()), address, event.generation);
        }
        kind::PUT_BACK_SAMPLE => {
            apply::put_back(origin, &Lookup::Sampled(sample()), address, event.generation);
        }
        _ => bump(&owner.traffic.dropped, 1),
    }
}

fn site(event: &Event, path: &[u8]) -> u32 {
    match event.site {
        site_by::BY_CALLER => SITES.native(event.caller as usize, None),
        site_by::BY_PLACE => {
            let place = Place { path, build: event.build, offset: event.offset };
            SITES.native(event.caller as usize, Some(place))
        }
        site_by::BY_LINE => SITES.ruby_line(path, event.line),
        pseudo => Some(pseudo),
    }
    .unwrap_or(SITE_OTHER)
}
