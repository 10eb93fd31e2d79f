//! Reading Ruby's own heap, slot by slot.
//!
//! Rule: from the first slot to the last, no Ruby object is allocated and no Ruby code runs, so nothing is freed,
//! moved or created meanwhile. Names and paths are copied out of objects before the walk ends. No `VALUE` outlives
//! the walk, no internal object reaches Ruby, and no object is kept alive. A walk in steps ([`survey`]) keeps this
//! rule for each step.

mod classes;
pub(crate) mod data;
pub(crate) mod fibers;
pub(crate) mod find;
mod frozen_page;
mod functions;
mod greatest;
mod intern;
pub(crate) mod iseqs;
pub(crate) mod objects;
mod outlived;
pub(crate) mod pages;
pub(crate) mod survey;
pub(crate) mod tracked;
mod walk;
pub(crate) mod watched;

pub(crate) use frozen_page::{DataObject, FrozenPage, Vm, list_pages, list_pages_alone};
pub(crate) use functions::missing;
pub(crate) use walk::{Trouble, count_slots, leaves_marking};
