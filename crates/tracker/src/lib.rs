//! The data of the hook: live blocks, call sites, counters, threads.
//!
//! It holds data structures in memory of their own (`mmap`). Nothing here intercepts a function or knows Ruby.
//! Everything that runs inside malloc allocates nothing from a heap, takes no lock that another library can hold,
//! formats nothing and has no path that panics.
//!
//! - [`table`]: address → block
//! - [`in_band`]: the same, in the last bytes of the block itself, where the allocator allows that
//! - [`objects`]: slot of a VM's object → its call site and birth
//! - [`sites`]: call site → number, and its name
//! - [`births`]: what was born during a measurement
//! - [`captures`]: copies of registers and stacks, for allocations whose native callers are sampled
//! - [`counters`]: what happened at a site
//! - [`samples`]: the same for sampled blocks, with [`chance`], [`estimate`], [`filter`] and [`sampler`]
//! - [`threads`]: per-thread state, and the pause that makes a reading exact
//! - [`deferred`]: events during a pause
//! - [`order`]: controls where the compiler computes a value
//! - [`ranges`]: the address ranges of all this memory
//! - [`stack`]: touches the stack in advance, and detects calls that were left by `longjmp`

pub mod births;
pub mod captures;
pub mod chance;
pub mod counters;
pub mod deferred;
pub mod estimate;
pub mod filter;
pub mod in_band;
mod key_map;
pub mod lock;
pub mod mmap;
pub mod objects;
pub mod order;
pub mod proc_file;
pub mod ranges;
pub mod sampler;
pub mod samples;
pub mod sites;
mod space;
pub mod stack;
pub mod table;
pub mod threads;
