//! What a measurement needs of Ruby, besides figures of malloc: objects as they come and go.

mod functions;
pub(crate) mod objects;

pub(crate) use functions::{functions, missing};
