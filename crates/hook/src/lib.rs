//! memintro's malloc hook: a library that knows nothing of Ruby, preloaded or loaded into a running process.
//!
//! # Rules of the house
//!
//! What runs inside malloc ([`stubs`], [`intercept`], [`nested`], [`place`], [`record`], [`apply`], [`defer`], [`replay`],
//! [`sampling`], [`draw`], [`thread`], [`tls`], and the tracker below them):
//! 1. allocates nothing from the heap it watches; its memory comes from `mmap`;
//! 2. takes no lock that Ruby, the loader or libc may hold, and none across a call into them; waits for another thread of
//!    the program only for the few instructions of a lock of its own, and goes on unrecorded if they do not come to an end;
//! 3. has no path that panics, and formats nothing;
//! 4. leaves `errno` as the real function left it;
//! 5. needs less than 1 KiB of stack: fibers and signal stacks are small;
//! 6. never unloads: a pointer to one of our functions, copied by somebody, works until the process ends.
//!
//! # What is taken over
//!
//! [`functions`] names every function once. When preloaded, the [`stubs`] of C's functions are this library's symbols; those
//! of all others, and in a running process of all, [`patch`] writes into the relocation slots of the loaded modules.
//!
//! # What is offered
//!
//! One symbol, [`control::memintro_control`], a table of functions ([`memintro_abi::Control`]).

mod allocator;
mod apply;
mod changes;
mod control;
mod count;
mod defer;
mod draw;
mod dump;
mod dump_file;
mod exit;
mod figures;
mod fork;
mod functions;
mod init;
mod intercept;
mod nested;
mod patch;
mod pending;
mod place;
mod real;
mod record;
mod replay;
mod sampling;
mod shared;
mod start;
mod state;
mod stubs;
mod thread;
mod tls;
