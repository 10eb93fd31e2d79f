//! The walk: passes each page of the heap to a closure, without running any Ruby code in between.
//!
//! Ruby finishes the collection that is under way first. Pages without any object are not visited.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

use magnus::rb_sys::protect;

use super::functions::{self, Functions};
use crate::atlas::Object;
use crate::atlas::types::T_NONE;
use crate::copy::own_memory::has_room;

/// Why the walk was not possible.
pub(crate) enum Trouble {
    /// This Ruby lacks these functions.
    Missing(Vec<&'static str>),
    /// It is not known how this Ruby lays out its objects.
    UnknownObjects,
    /// The number that iseqs have in all known Rubies means something else in this one.
    NoIseqs,
    /// The collector is running, so the heap must not be read now.
    Collecting,
    /// Ruby raised, because it had no memory.
    Raised(magnus::Error),
    /// There is no memory for what the walk finds.
    NoRoom,
}

/// One page: its slots are `stride` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) stride: usize,
}

impl Page {
    /// All its slots, empty ones included.
    #[inline]
    pub(super) fn slots(self) -> impl Iterator<Item = Object> {
        // SAFETY: these are the slots of a page, while Ruby walks over it.
        (self.start..self.end).step_by(self.stride.max(1)).map(|address| unsafe { Object::read(address) })
    }

    /// Puts the matching slots at the start of the buffer and returns them. Rare kinds are found faster this way,
    /// because there is no branch to mispredict.
    #[inline]
    pub(super) fn select(self, buffer: &mut Vec<Object>, meant: impl Fn(Object) -> bool) -> &[Object] {
        let room = (self.end - self.start) / self.stride.max(1) + 1;
        if buffer.len() < room {
            buffer.resize(room, Object { address: 0, flags: 0 });
        }
        let mut count = 0;
        for slot in self.slots() {
            if let Some(place) = buffer.get_mut(count) {
                *place = slot;
            }
            count += usize::from(meant(slot));
        }
        &buffer[..count]
    }
}

struct Visit<F> {
    visit: F,
}

/// Passes each page to `visit`, which may neither allocate in Ruby nor panic.
pub(super) fn each_page<F: FnMut(&Functions, Page)>(mut visit: F) -> Result<(), Trouble> {
    if !has_room() {
        return Err(Trouble::NoRoom);
    }
    pages(false, |vm, page| {
        visit(vm, page);
        ControlFlow::Continue(())
    })
}

/// The same up to the page at which `visit` stops. A marking that is under way is not finished, because that would
/// take as long as a collection.
pub(super) fn some_pages<F: FnMut(&Functions, Page) -> ControlFlow<()>>(visit: F) -> Result<(), Trouble> {
    pages(true, visit)
}

/// Whether [`some_pages`] can leave a marking unfinished.
pub(crate) fn leaves_marking() -> bool {
    functions::get().is_ok_and(|vm| vm.marking.is_some())
}

fn pages<F: FnMut(&Functions, Page) -> ControlFlow<()>>(
    leave_marking: bool,
    mut visit: F,
) -> Result<(), Trouble> {
    let vm = functions::get().map_err(Trouble::Missing)?;
    // SAFETY: reads a word of the VM.
    if unsafe { (vm.during_gc)() } != 0 {
        return Err(Trouble::Collecting);
    }
    let mut ended = false;
    let mut with_vm = Visit {
        visit: |page: Page| {
            // Ruby continues with the pages of the next slot size.
            ended = ended || visit(vm, page).is_break();
            c_int::from(ended)
        },
    };
    let callback = callback_of(&with_vm);
    let data = (&raw mut with_vm).cast::<c_void>();
    let each_page = match vm.marking {
        Some(marking) if leave_marking && marking.is_under_way() => marking.each_page,
        _ => vm.each_page,
    };
    // Ruby raises when it has no memory for the list of its pages.
    protect(|| {
        // SAFETY: the closure outlives the call, and the callback is made for it.
        unsafe { each_page(callback, data) };
        rb_sys::Qnil as rb_sys::VALUE
    })
    .map_err(Trouble::Raised)?;
    Ok(())
}

fn callback_of<F: FnMut(Page) -> c_int>(_: &Visit<F>) -> functions::PageCallback {
    on_page::<F>
}

unsafe extern "C" fn on_page<F: FnMut(Page) -> c_int>(
    start: *mut c_void,
    end: *mut c_void,
    stride: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the word that the walk was given; no other code uses it meanwhile.
    let state = unsafe { &mut *data.cast::<Visit<F>>() };
    (state.visit)(Page { start: start as usize, end: end as usize, stride })
}

/// A walk that does nothing, as a baseline for measurements. Returns taken slots and all slots.
pub(crate) fn count_slots() -> Result<(u64, u64), Trouble> {
    let (mut taken, mut all) = (0, 0);
    each_page(|_, page| {
        for slot in page.slots() {
            taken += u64::from(slot.kind() != T_NONE);
            all += 1;
        }
    })?;
    Ok((taken, all))
}
