//! The part of a measurement that needs Ruby: objects that come and go.

mod functions;
mod lines;
pub(crate) mod objects;
pub(crate) mod stack;

pub(crate) use functions::{functions, missing};
