//! The real functions: whose definition each of our functions goes on to. Never what a slot holds (that may be a stub
//! which binds itself), and never a non-PIE program's PLT entry of that name (that leads back to a slot).
//!
//! - C's own are those that the loader finds in the program's scope: among the modules that came with the program, the
//!   first that defines them. What somebody loads later is nobody's malloc but its own: a library that was opened with
//!   `RTLD_LOCAL` may define one, and be gone again tomorrow.
//! - All others are only taken over in slots that hold the very function that is found here, so whatever is found, the
//!   program calls what it would have called. Of C++'s operators those are sought that must be: an allocator's, which
//!   do not pass through malloc; and the C++ runtime's, which do, but would all look like calls of its own. Anybody
//!   else's pass through malloc, and are left alone.

use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memintro_elf::{Definition, Module};

use super::modules::{Loaded, walk, walk_again};
use crate::nested::MAY_COME_BACK;
use crate::real::{Family, Function};

/// References to libc's functions name such a version. Definitions of other ones are none for them.
const LIBC_VERSIONS: &[&[u8]] = &[b"GLIBC_"];
/// The same for C++'s operators.
const CXX_VERSIONS: &[&[u8]] = &[b"GLIBCXX_", b"CXXABI_"];

/// How many modules came with the program. They are the first of the loader's list, and stay there.
static AT_START: AtomicU32 = AtomicU32::new(0);

/// Functions (one bit each) whose real one came with the program.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Those that more than one module defines.
static SEVERAL: AtomicU64 = AtomicU64::new(0);
/// Those that a module defines which was loaded later, and is not the C++ runtime.
static LATER: AtomicU64 = AtomicU64::new(0);
/// Those that a module defines in a version of its own.
static VERSIONED: AtomicU64 = AtomicU64::new(0);

/// What is known of a function's definitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The real one came with the program: every module looks there first, and it stays.
    pub(super) is_early: bool,
    /// Some other module defines it as well.
    pub(super) has_others: bool,
    /// One of those was loaded later, and is not the C++ runtime: only some modules can be bound to it.
    pub(super) has_later: bool,
    /// One of those is in a version of its own, so that only references to that one can be bound to it.
    pub(super) has_versions: bool,
}

/// What is known of the definitions of the function of this index.
pub(super) fn scope(index: u8) -> Scope {
    let has = |set: &AtomicU64| set.load(Ordering::Relaxed) & bit(index.into()) != 0;
    Scope {
        is_early: has(&EARLY),
        has_others: has(&SEVERAL),
        has_later: has(&LATER),
        has_versions: has(&VERSIONED),
    }
}

/// The real function, if it has been found.
pub(super) fn real(function: &Function) -> Option<usize> {
    let real = function.real.load(Ordering::Acquire).cast_const();
    (!core::ptr::eq(real, function.boot)).then_some(real as usize)
}

/// The bit that stands for the function of this index in a set.
pub(super) fn bit(index: usize) -> u64 {
    u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0)
}

/// Whether the module came with the program.
pub(super) fn came_with_the_program(loaded: &Loaded<'_>) -> bool {
    loaded.index < AT_START.load(Ordering::Relaxed)
}

/// Finds the real functions that are not known yet, and forgets those that are gone. Allocates nothing and takes no
/// lock but that of the loader's list; may be called by several threads at once, and inside malloc.
pub(crate) fn resolve(functions: &[Function]) {
    let at_start = count_at_start();
    // The list is locked throughout, also while what was found is written down: whoever comes later has the last word.
    walk(|_| {
        let mut search = Search::new(functions, at_start);
        walk_again(|loaded| {
            search.visit(loaded);
            ControlFlow::Continue(())
        });
        search.publish();
        ControlFlow::Break(())
    });
}

/// Modules that came with the program. Preloaded, we see the list before anybody can have loaded more: that begins
/// with an allocation. Loaded later, we know it of all up to libc and the loader, which no process lacks; who comes
/// behind them finds libc's malloc in any case.
fn count_at_start() -> u32 {
    let known = AT_START.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let (mut all, mut up_to_libc, mut are_we_first) = (0, 0, false);
    walk(|loaded| {
        all = loaded.index.saturating_add(1);
        are_we_first |= loaded.is_own() && up_to_libc == 0;
        if loaded.is_libc() || loaded.is_loader() {
            up_to_libc = all;
        }
        ControlFlow::Continue(())
    });
    let count = if are_we_first || up_to_libc == 0 { all } else { up_to_libc };
    match AT_START.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => count,
        Err(known) => known,
    }
}

/// What a function of libc's of this name leads to for everybody who would find it behind this library. (`RTLD_NEXT`
/// would ask the loader, by way of whoever has taken dlsym over.)
pub(crate) fn next(name: &CStr) -> *const () {
    let at_start = count_at_start();
    let mut is_before_us = are_we_before_libc();
    let mut found = core::ptr::null();
    walk(|loaded| {
        is_before_us &= !loaded.is_own();
        if is_before_us || loaded.is_excluded() || loaded.index >= at_start {
            return ControlFlow::Continue(());
        }
        let Ok(module) = loaded.module() else { return ControlFlow::Continue(()) };
        match module.defined_for(name.to_bytes(), LIBC_VERSIONS) {
            Ok(Some(definition)) => {
                found = address(definition);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    });
    found
}

/// A symbol in the scope of the program itself.
pub(crate) fn look_up(symbol: &CStr) -> *const libc::c_void {
    // SAFETY: look-ups by name; the handle of the program itself needs no closing.
    unsafe { libc::dlsym(libc::dlopen(core::ptr::null(), libc::RTLD_LAZY), symbol.as_ptr()) }
}

/// One walk over all modules, in the order of look-ups.
struct Search<'a> {
    functions: &'a [Function],
    at_start: u32,
    /// Preloaded behind another library that stands before the allocator (another profiler), we are what that one
    /// calls: C's functions go on to what comes behind us.
    is_before_us: bool,
    is_after_libc: bool,
    /// Functions that somebody defines, and that somebody else does as well.
    defined: u64,
    again: u64,
    /// Those that the modules that came with the program have settled.
    settled: u64,
    early: u64,
    later: u64,
    versioned: u64,
    /// Those that were found in a module that was loaded later.
    found_later: u64,
    comes_back: bool,
}

impl<'a> Search<'a> {
    fn new(functions: &'a [Function], at_start: u32) -> Self {
        Self {
            functions,
            at_start,
            is_before_us: are_we_before_libc(),
            is_after_libc: false,
            defined: 0,
            again: 0,
            settled: 0,
            early: 0,
            later: 0,
            versioned: 0,
            found_later: 0,
            comes_back: false,
        }
    }

    fn visit(&mut self, loaded: &Loaded<'_>) {
        self.is_before_us &= !loaded.is_own();
        if loaded.is_excluded() {
            return;
        }
        if let Ok(module) = loaded.module() {
            self.look_into(loaded, &module);
        }
        self.is_after_libc |= loaded.is_libc();
    }

    fn look_into(&mut self, loaded: &Loaded<'_>, module: &Module<'_>) {
        let is_early = loaded.index < self.at_start;
        let has_malloc = matches!(module.defined(b"malloc"), Ok(Some(_)));
        for (index, function) in self.functions.iter().enumerate() {
            let name = function.name.to_bytes();
            let Ok(Some(definition)) = module.defined(name) else { continue };
            let bit = bit(index);
            self.again |= self.defined & bit;
            self.defined |= bit;
            let is_runtime = is_runtime(function.family, loaded);
            if !is_early && !is_runtime {
                self.later |= bit;
            }
            let found = match function.family {
                Family::Extended => Ok(Some(definition)),
                Family::Operator => module.defined_for(name, CXX_VERSIONS),
                Family::C | Family::Text | Family::Loader => module.defined_for(name, LIBC_VERSIONS),
            };
            let Ok(Some(found)) = found else {
                self.versioned |= bit;
                continue;
            };
            if is_early {
                self.found_early(function, bit, found, loaded, has_malloc);
            } else if self.settled & bit == 0 && self.found_later & bit == 0 && is_runtime {
                self.found_later |= bit;
                function.real.store(address(found).cast_mut(), Ordering::Release);
            }
        }
    }

    /// The first definition among the modules that came with the program is the one, or else there is none for us.
    fn found_early(
        &mut self,
        function: &Function,
        bit: u64,
        found: Definition,
        loaded: &Loaded<'_>,
        has_malloc: bool,
    ) {
        let (is_theirs, is_ours) = match function.family {
            Family::C => (!self.is_before_us, true),
            Family::Operator => {
                (true, !self.is_before_us && (has_malloc || is_runtime(Family::Operator, loaded)))
            }
            Family::Extended | Family::Loader => (true, true),
            // The allocator's only where the malloc is that comes before libc's.
            Family::Text => (
                !self.is_before_us && (has_malloc || loaded.is_libc()),
                !self.is_after_libc && !loaded.is_libc(),
            ),
        };
        if !is_theirs || self.settled & bit != 0 {
            return;
        }
        self.settled |= bit;
        if !is_ours {
            return;
        }
        self.early |= bit;
        self.comes_back |= !loaded.is_libc() && [c"calloc", c"realloc"].contains(&function.name);
        // Another thread may have found the same. Where an indirect function was asked once, it is not asked again.
        if real(function).is_none() {
            let (boot, new) = (function.boot.cast_mut(), address(found).cast_mut());
            let _ = function.real.compare_exchange(boot, new, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn publish(&self) {
        SEVERAL.store(self.again, Ordering::Relaxed);
        LATER.store(self.later, Ordering::Relaxed);
        VERSIONED.store(self.versioned, Ordering::Relaxed);
        EARLY.store(self.early, Ordering::Relaxed);
        MAY_COME_BACK.store(self.comes_back, Ordering::Relaxed);
        let known = self.early | self.found_later;
        for (_, function) in self.functions.iter().enumerate().filter(|(index, _)| known & bit(*index) == 0) {
            if real(function).is_some_and(|real| real != function.fallback as usize) {
                function.real.store(function.boot.cast_mut(), Ordering::Release);
            }
        }
    }
}

/// Whether this library was preloaded, by its place in the list: the constructor may not have run yet.
fn are_we_before_libc() -> bool {
    let mut first_is_ours = false;
    walk(|loaded| {
        first_is_ours = loaded.is_own();
        if first_is_ours || loaded.is_libc() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    first_is_ours
}

/// Whether the module is the system's own place for such functions, also where it is loaded later.
fn is_runtime(family: Family, loaded: &Loaded<'_>) -> bool {
    match family {
        Family::Operator => is_cxx_runtime(loaded.file()),
        // Before glibc 2.34.
        Family::Loader => loaded.file().starts_with(b"libdl.so"),
        _ => false,
    }
}

/// Whether a file of this name is a C++ runtime.
pub(super) fn is_cxx_runtime(file: &[u8]) -> bool {
    [&b"libstdc++.so"[..], b"libc++.so", b"libc++abi.so"].iter().any(|name| file.starts_with(name))
}

/// The function's address. An indirect one is asked for it, as the loader does, under the loader's locks.
fn address(definition: Definition) -> *const () {
    let address = definition.address as *const ();
    if !definition.indirect {
        return address;
    }
    // SAFETY: reads the auxiliary vector.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
    // SAFETY: the module says that a resolver is at this address; where it takes an argument, it is this one.
    unsafe {
        core::mem::transmute::<*const (), unsafe extern "C" fn(u64) -> *const ()>(address)(capabilities)
    }
}
