//! Finds the real functions, to which the stubs jump. It is never the value of a slot, which may be a PLT stub that
//! is not bound yet, and never the PLT entry of that name in a non-PIE program, which leads back to a slot.
//!
//! - The real functions of C are those that the loader finds in the program's scope: the first definition among the
//!   modules that came with the program. A library that is loaded later may define a malloc for itself
//!   (`RTLD_LOCAL`), and may be unloaded again.
//! - All others are patched only in slots that hold exactly the function that is found here, so the program always
//!   calls what it would have called. Of C++'s operators two kinds are needed: those of an allocator, which do not
//!   call malloc; and those of the C++ runtime, which do, but whose blocks would all belong to the runtime. Other
//!   libraries' operators call malloc, and are not patched.

use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memintro_elf::{Definition, Module};

use super::modules::{Loaded, walk, walk_again};
use crate::nested::MAY_COME_BACK;
use crate::real::{Family, Function};
use crate::shared::BODIES_ONLY;

/// The version that references to libc's functions name. Definitions with other versions do not match them.
const LIBC_VERSIONS: &[&[u8]] = &[b"GLIBC_"];
/// The same for C++'s operators.
const CXX_VERSIONS: &[&[u8]] = &[b"GLIBCXX_", b"CXXABI_"];

/// The number of modules that came with the program. They are the first ones in the loader's list, and stay there.
static AT_START: AtomicU32 = AtomicU32::new(0);

/// Functions (one bit each) whose real one came with the program.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Those that more than one module defines.
static SEVERAL: AtomicU64 = AtomicU64::new(0);
/// Functions that a module defines which was loaded later and is not the C++ runtime.
static LATER: AtomicU64 = AtomicU64::new(0);
/// Functions that a module defines in a version of its own.
static VERSIONED: AtomicU64 = AtomicU64::new(0);

/// Functions whose real one is libc's.
static OF_LIBC: AtomicU64 = AtomicU64::new(0);

/// Whether the real functions with these indices are libc's, and no other module defines one of that name in
/// any version (glibc's checking malloc has another version, which the usual search does not find).
pub(super) fn are_of_libc(indices: impl Iterator<Item = usize>) -> bool {
    let wanted = indices.fold(0, |all, index| all | bit(index));
    OF_LIBC.load(Ordering::Relaxed) & wanted == wanted && SEVERAL.load(Ordering::Relaxed) & wanted == 0
}

/// Facts about a function's definitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The real one came with the program. Each module finds it first, and it is never unloaded.
    pub(super) is_early: bool,
    /// Another module defines it as well.
    pub(super) has_others: bool,
    /// One of those modules was loaded later, and is not the C++ runtime, so only some modules can be bound to it.
    pub(super) has_later: bool,
    /// One of those definitions has a version of its own, so only references to that version can be bound to it.
    pub(super) has_versions: bool,
}

/// Facts about the definitions of the function with this index.
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

/// The bit of the function with this index in a set.
pub(super) fn bit(index: usize) -> u64 {
    u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0)
}

/// Whether the module came with the program.
pub(super) fn came_with_the_program(loaded: &Loaded<'_>) -> bool {
    loaded.index < AT_START.load(Ordering::Relaxed)
}

/// Finds the real functions that are not known yet, and forgets those that were unloaded. Allocates nothing and takes
/// no lock but the one on the loader's list. Several threads may call it at once, also inside malloc.
pub(crate) fn resolve(functions: &[Function]) {
    let at_start = count_at_start();
    // The list is locked until the result has been stored, so the result of the latest walk is the one that stays.
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

/// The number of modules that came with the program. A preloaded hook sees the list before any other module can be
/// loaded, because loading begins with an allocation. A hook that was loaded later counts up to libc and the loader,
/// which each process has; modules behind them find libc's malloc in any case.
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

/// The function that a module would find behind this library under the name of a libc function. (`RTLD_NEXT` would
/// ask the loader through a dlsym that may have been taken over.)
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

/// Looks a symbol up in the scope of the program itself.
pub(crate) fn look_up(symbol: &CStr) -> *const libc::c_void {
    // SAFETY: look-ups by name; the handle of the program itself needs no closing.
    unsafe { libc::dlsym(libc::dlopen(core::ptr::null(), libc::RTLD_LAZY), symbol.as_ptr()) }
}

/// One walk over all modules, in the order of symbol lookup.
struct Search<'a> {
    functions: &'a [Function],
    at_start: u32,
    /// If another profiler was preloaded in front of the allocator and this library behind it, the profiler calls
    /// this library. Then the real functions of C are the definitions behind this library.
    is_before_us: bool,
    is_after_libc: bool,
    /// Functions that more than one module defines.
    defined: u64,
    again: u64,
    /// Functions whose real one was found among the modules that came with the program.
    settled: u64,
    early: u64,
    of_libc: u64,
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
            of_libc: 0,
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
                Family::C | Family::Asking | Family::Text | Family::Loader => {
                    module.defined_for(name, LIBC_VERSIONS)
                }
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

    /// Only the first definition among the modules that came with the program counts.
    fn found_early(
        &mut self,
        function: &Function,
        bit: u64,
        found: Definition,
        loaded: &Loaded<'_>,
        has_malloc: bool,
    ) {
        let (is_theirs, is_ours) = match function.family {
            Family::C | Family::Asking => (!self.is_before_us, true),
            Family::Operator => {
                (true, !self.is_before_us && (has_malloc || is_runtime(Family::Operator, loaded)))
            }
            Family::Extended | Family::Loader => (true, true),
            // An allocator's operators count only in the module whose malloc is found before libc's.
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
        if loaded.is_libc() {
            self.of_libc |= bit;
        }
        self.comes_back |= !loaded.is_libc() && [c"calloc", c"realloc"].contains(&function.name);
        // Another thread may have found the same. An indirect function's resolver is called only once.
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
        OF_LIBC.store(self.of_libc, Ordering::Relaxed);
        MAY_COME_BACK.store(self.comes_back, Ordering::Relaxed);
        if self.comes_back {
            BODIES_ONLY.store(true, Ordering::Relaxed);
        }
        let known = self.early | self.found_later;
        for (_, function) in self.functions.iter().enumerate().filter(|(index, _)| known & bit(*index) == 0) {
            if real(function).is_some_and(|real| real != function.fallback as usize) {
                function.real.store(function.boot.cast_mut(), Ordering::Release);
            }
        }
    }
}

/// Whether this library was preloaded, judged by its place in the list, because the constructor may not have run yet.
fn are_we_before_libc() -> bool {
    let mut first_is_ours = false;
    walk(|loaded| {
        first_is_ours = loaded.is_own();
        if first_is_ours || loaded.is_libc() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    first_is_ours
}

/// Whether the module is the system's library for such functions, also if it is loaded later.
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

/// The function's address. For an indirect function this calls its resolver, as the loader does, while the loader
/// holds its locks.
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
