//! Finds the C functions that led to an allocation from copied registers and stack bytes.
//!
//! The hook copies ([`memintro_abi::CallerSample`]); everything here happens outside of malloc, in the same process, and
//! reads nothing through a pointer that may have become invalid: the stack from the copy, unwind tables from copies that
//! are made while the loader's list is locked, symbols and line tables from files.
//!
//! - [`modules`]: the loaded modules, and the unwind tables of each
//! - [`frame`]: from a frame to its caller, by gimli
//! - [`chain`]: the frames of a stack that are the native callers
//! - [`flat`]: the same tables in advance, for stacks that are followed inside malloc
//! - [`tally`]: how many samples of each call site came through which callers
//! - [`names`]: names and lines of C, by object and addr2line
//!
//! Tables may be damaged. Nothing panics then, each frame takes a bounded number of steps, and each stack a bounded
//! number of frames. Frames without tables are not guessed: the stack ends there. (framehop, which does the same for
//! profilers, guesses by frame pointers, and evaluates expressions without a bound.)

pub mod chain;
pub mod flat;
pub mod frame;
pub mod modules;
pub mod names;
mod recent;
mod steps;
pub mod tally;

pub use chain::{Chain, Unwinder};
pub use flat::{Flat, FlatModule, Flattener};
pub use frame::Registers;
pub use modules::{Loaded, Place};
pub use names::{Name, Names};
pub use tally::{CallerFigures, SiteFigures, Tally};
