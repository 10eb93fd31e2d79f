//! Reading Ruby's own heap, slot by slot.
//!
//! Rule: from the first slot to the last no Ruby object is allocated and no Ruby code runs, so nothing is freed, moved
//! or created meanwhile. What is to be said about objects (names, paths) is copied out of them before that ends: no
//! `VALUE` outlives the walk, nothing hidden reaches Ruby and nothing is kept alive. A walk in steps ([`survey`]) keeps this
//! rule for each step.

mod classes;
mod functions;
mod greatest;
mod intern;
pub(crate) mod iseqs;
pub(crate) mod objects;
pub(crate) mod pages;
mod slot;
pub(crate) mod survey;
mod walk;

pub(crate) use functions::missing;
pub(crate) use walk::{Trouble, count_slots, leaves_marking};
