//! What a measurement needs of Ruby, besides figures of malloc: objects as they come and go.

mod functions;
mod lines;
pub(crate) mod objects;
pub(crate) mod stack;

pub(crate) use functions::{functions, missing};
