//! Tells the hook of each object that Ruby makes, frees or moves ([`crate::object_events`]).

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use magnus::{Error, Ruby};
use memintro_abi::{BlockRecord, HookApi, ObjectWords, Status};
use rb_sys::VALUE;

use crate::heap::watched::{Wanted, Watched};
use crate::heap::{self, Trouble};
use crate::object_events::{self, FREED, Follower, Functions, MADE};
use crate::{hook_link, marked_objects, object_words, sampled_objects, vm};

/// Objects are tracked.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether only some classes are tracked.
static IS_CHOOSY: AtomicBool = AtomicBool::new(false);

/// One object in this many is followed; 0: all of them.
static MEAN: AtomicU64 = AtomicU64::new(0);

/// The classes that are tracked, if not all are.
struct Chosen(UnsafeCell<Option<Watched>>);
// SAFETY: it is used with the GVL of the main Ractor only, by what neither runs Ruby code nor comes back here.
unsafe impl Sync for Chosen {}
static CHOSEN: Chosen = Chosen(UnsafeCell::new(None));

fn chosen<R>(use_it: impl FnOnce(&mut Option<Watched>) -> R) -> R {
    // SAFETY: see `Chosen`.
    use_it(unsafe { &mut *CHOSEN.0.get() })
}

/// The words that the hook itself reads of new objects.
static WORDS: ObjectWords = object_words::unknown(on_made);

/// Whether it does.
pub(crate) fn reads_new() -> bool {
    WORDS.object.load(Ordering::Relaxed) != 0
}

/// Which objects to track.
#[derive(PartialEq, Eq)]
pub(crate) enum Objects {
    None,
    All,
    Of(Wanted),
    /// One in this many.
    Sampled(u64),
}

impl Objects {
    fn now() -> Self {
        if !is_on() {
            return Self::None;
        }
        if is_sampled() {
            return Self::Sampled(MEAN.load(Ordering::Relaxed));
        }
        chosen(|watched| watched.as_ref().map_or(Self::All, |watched| Self::Of(watched.wanted().clone())))
    }
}

/// Whether objects are tracked now.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether those that are tracked are a sample.
pub(crate) fn is_sampled() -> bool {
    is_on() && MEAN.load(Ordering::Relaxed) != 0
}

/// Why objects cannot be tracked.
pub(crate) enum Refusal {
    /// This Ruby has no way to.
    Missing,
    /// This Ruby does not tell an object's class.
    Classes(Trouble),
    /// Ruby raised.
    Raised(Error),
}

/// Tracks these objects from now on. What was tracked before is forgotten if it was others.
pub(crate) fn track(ruby: &Ruby, objects: Objects) -> Result<Status, Refusal> {
    // Each stop ends it, mostly where it was never begun: nothing is looked up then.
    if objects == Objects::now() {
        return Ok(Status::OK);
    }
    let (Some(api), Some(vm)) = (hook_link::found(), object_events::functions(ruby)) else {
        return Err(Refusal::Missing);
    };
    if is_on() {
        end(api, vm);
    }
    let mean = if let Objects::Sampled(mean) = objects { mean } else { 0 };
    let wanted = match objects {
        Objects::None => return Ok(Status::OK),
        Objects::All | Objects::Sampled(_) => None,
        Objects::Of(wanted) => Some(Watched::new(wanted).map_err(Refusal::Classes)?),
    };
    object_events::prepare(ruby, &FOLLOWER).map_err(Refusal::Raised)?;
    if wanted.is_none() && mean == 0 {
        object_words::prepare(ruby, vm, &WORDS);
    }
    IS_CHOOSY.store(wanted.is_some(), Ordering::Relaxed);
    chosen(|watched| *watched = wanted);
    MEAN.store(mean, Ordering::Relaxed);
    begin(api, vm)
}

/// Tracks none from now on.
pub(crate) fn stop() {
    if is_on()
        && let Some((api, vm)) = present()
    {
        end(api, vm);
    }
}

/// The event for ends is turned on first and off last, so that no object of the table is freed unnoticed.
fn begin(api: &HookApi, vm: &Functions) -> Result<Status, Refusal> {
    let begun = match MEAN.load(Ordering::Relaxed) {
        0 => begin_all(api, vm),
        mean => sampled_objects::begin(api, vm, mean),
    };
    match begun {
        Ok(Status::OK) => IS_ON.store(true, Ordering::Relaxed),
        _ => end(api, vm),
    }
    begun
}

fn begin_all(api: &HookApi, vm: &Functions) -> Result<Status, Refusal> {
    // Which class was freed must be told at once: another may get its address.
    if IS_CHOOSY.load(Ordering::Relaxed) || !marked_objects::begin(vm)? {
        vm.listen(on_freed, FREED).map_err(Refusal::Raised)?;
    }
    let status = (api.track_objects)(true);
    // SAFETY: the words are a static.
    unsafe { (api.object_words)(&raw const WORDS) };
    let handler = if IS_CHOOSY.load(Ordering::Relaxed) { on_made_of_chosen } else { api.object_event };
    let listening = if status == Status::OK { vm.listen(handler, MADE) } else { Ok(()) };
    listening.map(|()| status).map_err(Refusal::Raised)
}

fn end(api: &HookApi, vm: &Functions) {
    vm.ignore(on_made_of_chosen);
    vm.ignore(api.object_event);
    vm.ignore(on_freed);
    marked_objects::end(vm);
    sampled_objects::end(vm);
    (api.track_objects)(false);
    IS_ON.store(false, Ordering::Relaxed);
    forget_chosen();
}

fn forget_chosen() {
    IS_CHOOSY.store(false, Ordering::Relaxed);
    chosen(|watched| *watched = None);
}

static FOLLOWER: Follower = Follower { each_kept, moved };

/// Visits the chosen classes, which must live on and not move.
fn each_kept(keep: &mut dyn FnMut(VALUE)) {
    chosen(|watched| {
        watched.iter().flat_map(|watched| &watched.wanted().classes).copied().for_each(keep);
    });
}

/// The handler of new objects of chosen classes.
unsafe extern "C" fn on_made_of_chosen(_: VALUE, argument: *mut c_void) {
    // SAFETY: the argument of an event.
    unsafe { made(argument) };
}

/// The handler of all new objects, which the hook's calls where it has to.
unsafe extern "C" fn on_made(_: VALUE, argument: *mut c_void) {
    // SAFETY: the argument of an event.
    if let Some(object) = unsafe { made(argument) } {
        // SAFETY: as above.
        unsafe { object_words::learn(&WORDS, argument, object) };
    }
}

/// Tells the hook of a new object, which is returned.
///
/// # Safety
/// It is the argument of an event.
unsafe fn made(argument: *mut c_void) -> Option<VALUE> {
    let (api, vm) = present()?;
    // SAFETY: the argument of an event.
    let object = unsafe { vm.object(argument) };
    if IS_CHOOSY.load(Ordering::Relaxed) && !is_chosen(object) {
        // If an object was there, its end was not told.
        (api.object_freed)(object as usize);
        return None;
    }
    // SAFETY: the object is in its slot.
    let bytes = unsafe { vm.slot_bytes(object) };
    let mut frame = vm::frame_of_event();
    // SAFETY: a valid record.
    unsafe { (api.object_made)(object as usize, bytes, &raw mut frame) };
    Some(object)
}

/// Ruby frees an object.
pub(crate) unsafe extern "C" fn on_freed(_: VALUE, argument: *mut c_void) {
    let Some((api, vm)) = present() else { return };
    // SAFETY: as above.
    let object = unsafe { vm.object(argument) };
    if IS_CHOOSY.load(Ordering::Relaxed) {
        // SAFETY: the object is still in its slot.
        let is_class = unsafe { heap::watched::is_class(object) };
        if is_class {
            forget_answers();
        }
    }
    (api.object_freed)(object as usize);
}

/// Whether an object that was made just now is of a chosen class.
fn is_chosen(object: VALUE) -> bool {
    let generation = vm::gc_count().unwrap_or_default();
    // SAFETY: the object of an event.
    chosen(|watched| watched.as_mut().is_none_or(|watched| unsafe { watched.means(object, generation) }))
}

fn forget_answers() {
    chosen(|watched| watched.iter_mut().for_each(Watched::forget));
}

fn present() -> Option<(&'static HookApi, &'static Functions)> {
    Some((hook_link::found()?, object_events::found()?))
}

/// Makes sure that each tracked object is there. Under the GVL, outside of a collection; to be called before anything looks
/// at them.
pub(crate) fn check(api: &HookApi) {
    if is_sampled() {
        sampled_objects::check(api);
    } else if is_on() {
        marked_objects::check(api);
    }
}

/// Objects have moved, and Ruby asks to update references.
fn moved(vm: &Functions) {
    let Some(api) = hook_link::found().filter(|_| is_on()) else { return };
    forget_answers();
    if is_sampled() {
        sampled_objects::check_when_moved(api);
    }
    let mut moves: Vec<(usize, usize)> = Vec::new();
    let mut memory = Memory::default();
    (api.untracked_enter)();
    let tracked = objects(api);
    if tracked.is_err() {
        if is_sampled() {
            sampled_objects::doubt();
        } else {
            marked_objects::miss();
        }
    }
    for object in tracked.unwrap_or_default() {
        let slot = object.address as usize;
        if memory.is_gone(slot) {
            (api.object_freed)(slot);
            continue;
        }
        // SAFETY: a slot of a page of Ruby's heap; Ruby answers for objects that did not move, too.
        let now = unsafe { vm.location(slot as VALUE) } as usize;
        if now != slot {
            moves.push((slot, now));
        }
    }
    for (from, to) in moves {
        (api.object_moved)(from, to);
    }
    (api.untracked_leave)();
}

/// Which pages of memory are mapped. Ruby does not tell of an object that it frees while another listener's handler runs,
/// such as that of `ObjectSpace.trace_object_allocations`, whose record takes memory and so starts collections. The slot
/// of such an object is given back with its page of the heap, while the object still counts as live.
#[derive(Default)]
pub(crate) struct Memory {
    page: usize,
    is_gone: bool,
}

impl Memory {
    /// The kernel is asked once for each page.
    pub(crate) fn is_gone(&mut self, slot: usize) -> bool {
        // A divisor of all sizes that there are.
        let page = slot & !4095;
        if page != self.page {
            // SAFETY: touches no memory; with this flag, the kernel only looks whether the page is mapped.
            let failed = unsafe { libc::syscall(libc::SYS_msync, page, 1, libc::MS_ASYNC) } != 0;
            let error = || std::io::Error::last_os_error().raw_os_error();
            *self = Self { page, is_gone: failed && error() == Some(libc::ENOMEM) };
        }
        self.is_gone
    }
}

/// The live objects that are tracked. Fails if the figures cannot be read now.
pub(crate) fn objects(api: &HookApi) -> Result<Vec<BlockRecord>, Status> {
    unsafe extern "C" fn add(context: *mut c_void, record: *const BlockRecord) {
        // SAFETY: the context is the vector below, the record is valid during the visit.
        unsafe { (*context.cast::<Vec<BlockRecord>>()).push(*record) };
    }
    let mut objects = Vec::<BlockRecord>::new();
    // SAFETY: the callback fits the record, the context outlives the visit.
    let status = unsafe { (api.objects)((&raw mut objects).cast(), add) };
    if status.0 >= 0 { Ok(objects) } else { Err(status) }
}
