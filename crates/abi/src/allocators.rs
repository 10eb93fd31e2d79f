//! The allocators that memintro knows besides that of the C library. Each stands here once: the files of its library, how
//! it tells its figures, and how it gives free memory back. `rake figures` writes what Ruby reads of it.

use core::ffi::CStr;

/// One allocator.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Its name.
    pub name: &'static str,
    /// What the name of its library's file begins with.
    pub library: &'static str,
    /// How the names of the files that `memintro allocators` looks for go on, the best first.
    pub endings: &'static [&'static str],
    /// How it tells its figures. The function shows that this allocator is loaded.
    pub tells: Tells,
    /// Figures of [`Self::tells`] which, with these factors, add up to the bytes that it has from the kernel.
    pub held: &'static [(&'static str, i32)],
    /// How it gives free memory back.
    pub gives_back: GivesBack,
}

/// A figure in bytes: memintro's name, and that of the allocator.
pub type Named = (&'static str, &'static CStr);

/// How an allocator tells its figures.
#[derive(Clone, Copy, Debug)]
pub enum Tells {
    /// `int f(const char *name, void *value, size_t *length, void *new, size_t new_length)`; 0 is success.
    Control(&'static CStr, &'static [Named]),
    /// `int f(const char *name, size_t *value)`; 0 is failure.
    Property(&'static CStr, &'static [Named]),
    /// `void f(size_t *, …)` with eight places for figures: the place of each.
    Places {
        /// The function.
        function: &'static CStr,
        /// Names and places.
        figures: &'static [(&'static str, usize)],
        /// Functions that give the heap of this thread, and visit its parts as mimalloc does.
        heap: Option<(&'static CStr, &'static CStr)>,
    },
}

/// How an allocator gives free memory back.
#[derive(Clone, Copy, Debug)]
pub enum GivesBack {
    /// By this name, given to the function of [`Tells::Control`].
    Control(&'static CStr),
    /// By `void f(void)`.
    Call(&'static CStr),
    /// By `void f(bool)`, given true.
    Force(&'static CStr),
}

/// The allocators, in the order in which they are looked for.
pub const ALLOCATORS: &[Allocator] = &[
    Allocator {
        name: "jemalloc",
        library: "libjemalloc",
        endings: &[".so.2"],
        tells: Tells::Control(
            c"mallctl",
            &[
                ("allocated", c"stats.allocated"),
                ("active", c"stats.active"),
                ("metadata", c"stats.metadata"),
                ("resident", c"stats.resident"),
                ("mapped", c"stats.mapped"),
                ("retained", c"stats.retained"),
            ],
        ),
        held: &[("resident", 1)],
        // 4096 means all arenas (MALLCTL_ARENAS_ALL).
        gives_back: GivesBack::Control(c"arena.4096.purge"),
    },
    Allocator {
        name: "tcmalloc",
        library: "libtcmalloc",
        endings: &["_minimal.so.4"],
        tells: Tells::Property(
            c"MallocExtension_GetNumericProperty",
            &[
                ("allocated", c"generic.current_allocated_bytes"),
                ("heap", c"generic.heap_size"),
                ("unmapped", c"tcmalloc.pageheap_unmapped_bytes"),
                ("page_heap_free", c"tcmalloc.pageheap_free_bytes"),
                ("central_cache_free", c"tcmalloc.central_cache_free_bytes"),
                ("thread_cache_free", c"tcmalloc.current_total_thread_cache_bytes"),
            ],
        ),
        held: &[("heap", 1), ("unmapped", -1)],
        gives_back: GivesBack::Call(c"MallocExtension_ReleaseFreeMemory"),
    },
    Allocator {
        name: "mimalloc",
        library: "libmimalloc",
        endings: &[".so.3", ".so.2"],
        tells: Tells::Places {
            function: c"mi_process_info",
            figures: &[("committed", 5)],
            heap: Some((c"mi_heap_get_default", c"mi_heap_visit_blocks")),
        },
        held: &[("committed", 1)],
        gives_back: GivesBack::Force(c"mi_collect"),
    },
];
