//! memintro's malloc hook, preloaded or loaded into a running process.
//!
//! It is linked against no function of Ruby, and works in programs without Ruby. In a Ruby process the extension lends it
//! functions and the places of words ([`memintro_abi::VmSource`], [`memintro_abi::VmWords`]); with these it reads Ruby's
//! frames, lock, counters of collections and mark bits by their offsets ([`mod@line`], [`stacks`], [`object_birth`],
//! [`objects`]).
//!
//! # Rules
//!
//! Code that runs inside malloc ([`stubs`], [`intercept`], [`resize`], [`in_full`], [`nested`], [`place`], [`record`], [`mod@line`], [`apply`], [`callers`],
//! [`defer`], [`replay`], [`sampling`], [`draw`], [`thread`], [`tls`], and the tracker below them):
//! 1. allocates nothing from the heap that is tracked; its memory comes from `mmap`;
//! 2. takes no lock that Ruby, the loader or libc may hold, and none across a call into them; waits for another
//!    thread of the program only while that executes the few instructions under a lock of the hook, and goes on
//!    without recording if that takes too long;
//! 3. has no path that panics, and formats nothing;
//! 4. leaves `errno` as the real function left it;
//! 5. needs less than 1 KiB of stack: fibers and signal stacks are small;
//! 6. never unloads, so that a copied pointer to one of its functions works until the process ends.
//!
//! # What is taken over
//!
//! [`functions`] names each function once. When preloaded, the [`stubs`] of C's functions are symbols of this
//! library. [`patch`] writes the stubs of all other functions (in a running process, of all functions) into the
//! relocation slots of the loaded modules.
//!
//! # What is offered
//!
//! One symbol, [`hook_api::memintro_hook_api`], a table of functions ([`memintro_abi::HookApi`]).

mod allocator;
mod apply;
mod callers;
mod changes;
mod clear;
mod contents;
mod count;
mod defer;
mod draw;
mod dump;
mod dump_file;
mod dump_stacks;
mod exit;
mod figures;
mod fork;
mod functions;
mod hook_api;
mod in_band;
mod in_full;
mod init;
mod intercept;
mod line;
mod lost;
mod measure;
mod nested;
mod object_birth;
mod object_samples;
mod objects;
mod other_process;
mod patch;
mod pending;
mod place;
mod real;
mod record;
mod replay;
mod resize;
mod sampling;
mod shared;
mod stacks;
mod start;
mod state;
mod stubs;
mod thread;
mod tls;
