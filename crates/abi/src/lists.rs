//! The lists of figures. Each figure stands here once: how it adds up, its unit, and its column in tables. The records, the
//! counters, the raw dump, JSON, reports, the socket's schema and Ruby's readers are made from these lists.
//!
//! A list is a macro. It passes its entries to another macro, sorted by how they add up. `rake figures` writes what other
//! languages need: a header for C, lists for Ruby, signatures, a table for docs/.
//!
//! An entry says how the figure adds up ([`crate::Adds`]), its name, its unit ([`crate::Unit`]), when tables have a column
//! for it ([`crate::Column`]), and the heading of that column.

/// The figures of a call site, in the order of JSON.
#[macro_export]
macro_rules! site_figures {
    ($($make:tt)+) => {
        $crate::sort_figures! { [$($make)+]
            /// allocations made here
            Sum allocations: Count, Always(3) "allocs";
            /// blocks from here that were given back, wherever that happened
            Sum frees: Count, Always(4) "frees";
            /// bytes allocated here
            Sum total_bytes: Bytes, Sorted "allocated";
            /// bytes of the blocks from here that were given back
            Sum freed_bytes: Bytes, Sorted "freed";
            /// bytes of live blocks from here; with `older_than_gcs:` only of old ones
            Derived live_bytes: Bytes, Always(1) "live";
            /// live blocks from here; with `older_than_gcs:` only old ones
            Derived live_blocks: Count, Always(2) "blocks";
            /// mean age, in GC generations, at which blocks from here were given back
            Derived mean_lifespan: MeanAge, Sorted "mean life";
            /// greatest age, in GC generations, at which a block from here was given back
            Max max_lifespan: Age, Sorted "max life";
            /// sum of the ages, in GC generations, at which blocks from here were given back
            Sum age_total: Ages, Sorted "age total";
            /// live bytes of all ages now, less those at {Memintro.mark}; all of them without a mark
            Derived growth: Change, Always(5) "growth";
            /// bytes of the blocks from here that are live and have outlived a collection
            Old old_bytes: Bytes, Always(6) "older than 1 GC";
            /// how many blocks these are
            Old old_blocks: Count, Never "";
            /// live objects that were made here; with `older_than_gcs:` only old ones
            Object live_objects: Count, Objects(2) "objects";
            /// bytes of the slots of these objects
            Object object_bytes: Bytes, Objects(3) "in slots";
            /// objects made here, live or freed
            Object object_allocations: Count, Sorted "objects made";
            /// live bytes of blocks and of slots: what this line holds
            Object retained_bytes: Bytes, Objects(1) "retained";
        }
    };
}

/// The figures of a call site's objects. Bytes are those of their slots; what an object has from malloc is a block.
#[macro_export]
macro_rules! object_figures {
    ($($make:tt)+) => {
        $crate::sort_figures! { [$($make)+]
            /// objects made
            Sum allocations: Count, Never "";
            /// objects whose slot was freed
            Sum frees: Count, Never "";
            /// bytes of the slots of objects made
            Sum total_bytes: Bytes, Never "";
            /// bytes of the slots freed
            Sum freed_bytes: Bytes, Never "";
            /// bytes of live objects' slots at the last mark
            Exact marked_bytes: Bytes, Never "";
            /// live objects that have outlived at least one collection
            Old old_objects: Count, Never "";
            /// bytes of their slots
            Old old_bytes: Bytes, Never "";
        }
    };
}

/// The figures of the process since the last start or clear, in the order of JSON.
#[macro_export]
macro_rules! total_figures {
    ($($make:tt)+) => {
        $crate::sort_figures! { [$($make)+]
            /// bytes that all tracked allocations asked for
            Sum allocated_bytes: Bytes, Never "";
            /// bytes of the tracked blocks that were given back
            Sum freed_bytes: Bytes, Never "";
            /// bytes of the blocks that are live now
            Derived live_bytes: Bytes, Never "";
            /// number of tracked allocations
            Sum allocations: Count, Never "";
            /// number of tracked blocks that were given back
            Sum frees: Count, Never "";
            /// number of blocks that are live now
            Derived live_blocks: Count, Never "";
            /// blocks whose free went past the hook, found out when their address was handed out again
            Exact missed_frees: Count, Never "";
            /// resident bytes that tracking itself uses
            Exact tracker_bytes: Bytes, Never "";
            /// allocations that could not be followed because the budget, the memory or the table's room for different sizes
            /// (65,536 of 64 KiB and more) ran out
            Exact dropped: Count, Never "";
            /// call sites known, pseudo-sites included
            State sites: Count, Never "";
            /// GC generation now
            State generation: Count, Never "";
        }
    };
}

/// The rows of an account of resident memory, in their order. All are bytes. An entry has what sentences call the row, its
/// name, the part of the process that it belongs to ([`crate::AccountPart`]), and what must be known for it to be measured
/// ([`crate::Needs`]).
#[macro_export]
macro_rules! account_rows {
    ($make:ident) => {
        $make! {
            /// slots of live Ruby objects
            RubyHeapLive ruby_heap_live: RubyHeap, Pages;
            /// free slots on pages of Ruby's heap
            RubyHeapFree ruby_heap_free: RubyHeap, Pages;
            /// memory that Ruby objects own
            MallocRubyObjects malloc_ruby_objects: Malloc, Owners;
            /// compiled Ruby code
            MallocIseqs malloc_iseqs: Malloc, Owners;
            /// internal objects of Ruby's VM
            MallocInternal malloc_internal: Malloc, Owners;
            /// malloc memory that no Ruby object counts as its own
            MallocNative malloc_native: Malloc, Owners;
            /// memory that malloc has free but keeps
            MallocFree malloc_free: Malloc, Chunks;
            /// stacks of threads and fibers
            ThreadStacks thread_stacks: Other, Pages;
            /// pages of mapped files and libraries
            MappedFiles mapped_files: Files, Mappings;
            /// memory mapped past malloc
            Anonymous anonymous: Other, Chunks;
            /// memintro's own memory
            Memintro memintro: Files, Pages;
            /// memory that could not be attributed
            Unattributed unattributed: Other, Pages;
        }
    };
}

/// Sorts a list of figures: into estimates, exact integers, maxima and old ones. All of them come last.
#[doc(hidden)]
#[macro_export]
macro_rules! sort_figures {
    ([$($make:tt)+] $(
        $(#[doc = $doc:literal])+ $adds:ident $name:ident: $unit:ident, $column:ident $(($place:literal))? $heading:literal;
    )+) => {
        $crate::sort_figures! { @ [$($make)+] {} {} {} {} [$([$adds $(#[doc = $doc])+ $name: $unit;])+]
            { $($(#[doc = $doc])+ $adds $name: $unit, $column $(($place))? $heading;)+ }
        }
    };
    (@ $make:tt {$($sums:tt)*} $exact:tt $maxima:tt $old:tt [[Sum $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make {$($sums)* $($figure)+} $exact $maxima $old [$($more)*] $all }
    };
    (@ $make:tt $sums:tt {$($exact:tt)*} $maxima:tt $old:tt [[Exact $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make $sums {$($exact)* $($figure)+} $maxima $old [$($more)*] $all }
    };
    (@ $make:tt $sums:tt $exact:tt $maxima:tt $old:tt [[State $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make $sums $exact $maxima $old [[Exact $($figure)+] $($more)*] $all }
    };
    (@ $make:tt $sums:tt $exact:tt {$($maxima:tt)*} $old:tt [[Max $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make $sums $exact {$($maxima)* $($figure)+} $old [$($more)*] $all }
    };
    (@ $make:tt $sums:tt $exact:tt $maxima:tt {$($old:tt)*} [[Old $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make $sums $exact $maxima {$($old)* $($figure)+} [$($more)*] $all }
    };
    (@ $make:tt $sums:tt $exact:tt $maxima:tt $old:tt [[$computed:ident $($figure:tt)+] $($more:tt)*] $all:tt) => {
        $crate::sort_figures! { @ $make $sums $exact $maxima $old [$($more)*] $all }
    };
    (@ [$($make:tt)+] $sums:tt $exact:tt $maxima:tt $old:tt [] $all:tt) => {
        $($make)+! { sums $sums exact $exact maxima $maxima old $old all $all }
    };
}
