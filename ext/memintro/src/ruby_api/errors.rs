//! Memintro's error classes, as Rust reaches them. They are defined in `lib/memintro/error.rb`.

use magnus::{Error, ExceptionClass, RModule, Ruby, prelude::*};
use memintro_abi::Status;

/// An error of the class `Memintro::<name>`; a `RuntimeError` if the Ruby side was not loaded.
pub(crate) fn error(ruby: &Ruby, name: &str, message: impl Into<String>) -> Error {
    let class = ruby
        .class_object()
        .const_get::<_, RModule>("Memintro")
        .and_then(|memintro| memintro.const_get::<_, ExceptionClass>(name))
        .unwrap_or_else(|_| ruby.exception_runtime_error());
    Error::new(class, message.into())
}

/// The error for a status of the hook that is not a success.
pub(crate) fn from_status(ruby: &Ruby, status: Status) -> Error {
    let (name, message) = match status {
        Status::NO_MEMORY => (
            "ExhaustedError",
            "the kernel gave no memory for the table of live blocks: raise the container's limit or set max_tracker_bytes lower"
                .to_owned(),
        ),
        Status::DISABLED => (
            "DisabledError",
            "memintro is disabled in this process: MEMINTRO_DISABLE=1 is set, or the process is privileged (setuid)".to_owned(),
        ),
        Status::NO_ALLOCATOR => (
            "AllocatorError",
            "no module of this process defines malloc, calloc, realloc and free where memintro can find them; `memintro doctor` lists what is loaded"
                .to_owned(),
        ),
        Status::BUSY => {
            ("BusyError", "another thread is starting or stopping memintro right now: try again".to_owned())
        }
        Status::BAD_OPTION => ("Error", "the hook does not accept these options".to_owned()),
        Status::IO => (
            "Error",
            format!("the dump could not be written: {}", std::io::Error::last_os_error()),
        ),
        other => ("Error", format!("the hook answered with the unknown status {}", other.0)),
    };
    error(ruby, name, message)
}
