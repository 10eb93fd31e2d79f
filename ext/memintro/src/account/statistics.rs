//! The allocators' own figures.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use memintro_abi::{ALLOCATORS, Allocator, GivesBack, Named, Tells};

use crate::lookup::look_up;

type Mallctl = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type Property = unsafe extern "C" fn(*const c_char, *mut usize) -> c_int;
type ProcessInfo = unsafe extern "C" fn(
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
);
type MallocInfo = unsafe extern "C" fn(c_int, *mut libc::FILE) -> c_int;

/// The name of an allocator, and its figures in bytes.
pub(crate) type Statistics = (&'static str, Vec<Figure>);
type Figure = (&'static str, u64);

/// Those of the allocator that answers malloc.
pub(crate) fn of_allocator() -> Statistics {
    of_other().unwrap_or_else(|| of_libc(true))
}

/// Those of the C library; without its figures if they are not wanted.
pub(crate) fn of_libc(wants_figures: bool) -> Statistics {
    // SAFETY: the name stands for a function of this type wherever it exists.
    match unsafe { look_up!(c"malloc_info", MallocInfo) } {
        // SAFETY: the function that was found.
        Some(info) if wants_figures => ("glibc", unsafe { malloc_info(info) }),
        Some(_) => ("glibc", Vec::new()),
        None => ("unknown", Vec::new()),
    }
}

/// Those of an allocator that is not the C library's. Such figures are sums, and cost little.
pub(crate) fn of_other() -> Option<Statistics> {
    ALLOCATORS.iter().find_map(|allocator| Some((allocator.name, figures_of(allocator)?)))
}

/// None if the allocator is not loaded.
fn figures_of(allocator: &Allocator) -> Option<Vec<Figure>> {
    // SAFETY: each name stands for a function of this type wherever it exists.
    unsafe {
        Some(match allocator.tells {
            Tells::Control(function, names) => control(look_up!(function, Mallctl)?, names),
            Tells::Property(function, names) => property(look_up!(function, Property)?, names),
            Tells::Places { function, figures, heap } => {
                let told = places(look_up!(function, ProcessInfo)?, figures);
                [told, heap.and_then(|(find, visit)| own_heap(find, visit)).unwrap_or_default()].concat()
            }
        })
    }
}

/// Has the allocator that answers malloc give free memory back to the kernel; false if it has no function for that.
pub(crate) fn give_back() -> bool {
    type Trim = unsafe extern "C" fn(usize) -> c_int;
    type Call = unsafe extern "C" fn();
    type Force = unsafe extern "C" fn(bool);
    let found = ALLOCATORS.iter().find(|allocator| figures_of(allocator).is_some());
    // SAFETY: each name stands for a function of this type wherever it exists, and may be called at any time.
    unsafe {
        match found.map(|allocator| (allocator.gives_back, allocator.tells)) {
            Some((GivesBack::Control(name), Tells::Control(function, _))) => look_up!(function, Mallctl)
                .is_some_and(|mallctl| {
                    mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) == 0
                }),
            Some((GivesBack::Control(_), _)) => false,
            Some((GivesBack::Call(function), _)) => look_up!(function, Call).map(|call| call()).is_some(),
            Some((GivesBack::Force(function), _)) => {
                look_up!(function, Force).map(|call| call(true)).is_some()
            }
            None => look_up!(c"malloc_trim", Trim).map(|trim| trim(0)).is_some(),
        }
    }
}

unsafe fn places(info: ProcessInfo, names: &[(&'static str, usize)]) -> Vec<Figure> {
    let mut figures = [0_usize; 8];
    let base = figures.as_mut_ptr();
    // SAFETY: eight places, as the function wants them.
    unsafe {
        info(base, base.add(1), base.add(2), base.add(3), base.add(4), base.add(5), base.add(6), base.add(7));
    }
    names.iter().filter_map(|(key, place)| Some((*key, *figures.get(*place)? as u64))).collect()
}

/// A part of one of mimalloc's heaps, with blocks of one size. Later versions have more after this.
#[repr(C)]
struct HeapArea {
    blocks: *mut c_void,
    reserved: usize,
    committed: usize,
    /// In blocks. Before version 2.0.7, in bytes.
    used: usize,
    block_size: usize,
}

type HeapVisitor =
    unsafe extern "C" fn(*const c_void, *const HeapArea, *mut c_void, usize, *mut c_void) -> bool;
type DefaultHeap = unsafe extern "C" fn() -> *mut c_void;
type VisitBlocks = unsafe extern "C" fn(*const c_void, bool, HeapVisitor, *mut c_void) -> bool;

/// What mimalloc's heap of this thread has, and what of it is allocated. It has no figures of other heaps.
fn own_heap(find: &CStr, visit: &CStr) -> Option<Vec<Figure>> {
    #[derive(Default)]
    struct Sums {
        committed: usize,
        allocated: usize,
        is_wrong: bool,
    }
    unsafe extern "C" fn add(
        _heap: *const c_void,
        area: *const HeapArea,
        _block: *mut c_void,
        _size: usize,
        sums: *mut c_void,
    ) -> bool {
        // SAFETY: the sums below, and a record that is valid during the visit.
        let (sums, area) = unsafe { (&mut *sums.cast::<Sums>(), &*area) };
        let used = area.used.saturating_mul(area.block_size);
        sums.committed += area.committed;
        sums.allocated = sums.allocated.saturating_add(used);
        sums.is_wrong |= used > area.committed;
        true
    }
    let mut sums = Sums::default();
    // SAFETY: functions of these types wherever both exist; each thread may visit its own heap at any time.
    let whole = unsafe {
        let heap = look_up!(find, DefaultHeap)?;
        look_up!(visit, VisitBlocks)?(heap(), false, add, (&raw mut sums).cast())
    };
    let figures = [("thread_committed", sums.committed), ("thread_allocated", sums.allocated)];
    (whole && !sums.is_wrong).then(|| figures.map(|(key, bytes)| (key, bytes as u64)).to_vec())
}

unsafe fn control(mallctl: Mallctl, names: &[Named]) -> Vec<Figure> {
    let size = size_of::<usize>();
    let mut epoch = 1_u64;
    let mut length = size_of::<u64>();
    let place = (&raw mut epoch).cast::<c_void>();
    // SAFETY: a number is read and written: jemalloc's figures are then those of now.
    unsafe { mallctl(c"epoch".as_ptr(), place, &raw mut length, place, length) };
    let read = |name: &CStr| {
        let (mut value, mut length) = (0_usize, size);
        // SAFETY: room for the figure.
        let code =
            unsafe { mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut length, ptr::null_mut(), 0) };
        (code == 0 && length == size).then_some(value as u64)
    };
    names.iter().filter_map(|(key, name)| Some((*key, read(name)?))).collect()
}

unsafe fn property(property: Property, names: &[Named]) -> Vec<Figure> {
    let read = |name: &CStr| {
        let mut value = 0;
        // SAFETY: room for the figure.
        (unsafe { property(name.as_ptr(), &raw mut value) } != 0).then_some(value as u64)
    };
    names.iter().filter_map(|(key, name)| Some((*key, read(name)?))).collect()
}

/// Sums over all arenas: the last `total` of each type.
unsafe fn malloc_info(info: MallocInfo) -> Vec<Figure> {
    let mut text: *mut c_char = ptr::null_mut();
    let mut length = 0;
    // SAFETY: the stream is closed before its text is read, and the text is freed after it was copied.
    let copy = unsafe {
        let stream = libc::open_memstream(&raw mut text, &raw mut length);
        if stream.is_null() {
            return Vec::new();
        }
        info(0, stream);
        libc::fclose(stream);
        if text.is_null() {
            return Vec::new();
        }
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        copy
    };
    let sums = copy.rsplit("</heap>").next().unwrap_or_default();
    let figure = |kind: &str, attribute: &str| {
        let line = sums.lines().find(|line| line.contains(kind))?;
        let (_, rest) = line.split_once(attribute)?;
        rest.split('"').next()?.parse().ok()
    };
    let wanted = [
        ("fast", "<total type=\"fast\"", "size=\""),
        ("rest", "<total type=\"rest\"", "size=\""),
        ("mmap", "<total type=\"mmap\"", "size=\""),
        ("mmaps", "<total type=\"mmap\"", "count=\""),
        ("system", "<system type=\"current\"", "size=\""),
    ];
    wanted.into_iter().filter_map(|(key, kind, attribute)| Some((key, figure(kind, attribute)?))).collect()
}
