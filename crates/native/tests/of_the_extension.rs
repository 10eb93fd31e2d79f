//! Unit tests of those files of the extension that do not use Ruby. They run here because the extension's
//! dependencies, which read Ruby's headers, take longer to compile than all others together.
//! `rake cargo:test` refuses a test of the extension that is not here.

#![allow(dead_code)]

#[path = "../../../ext/memintro/src/vm/accessors.rs"]
mod accessors;
#[path = "../../../ext/memintro/src/copy/descriptors.rs"]
mod descriptors;
#[path = "../../../ext/memintro/src/vm/probe.rs"]
mod probe;
#[path = "../../../ext/memintro/src/heap_dump/text.rs"]
mod text;
#[path = "../../../ext/memintro/src/leaks/threads.rs"]
mod threads;
