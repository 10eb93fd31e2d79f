//! Memintro's error classes for Rust. They are defined in `lib/memintro/error.rb`.

use magnus::{Error, ExceptionClass, RModule, Ruby, prelude::*};
use memintro_abi::Status;

use crate::copy::own_memory::has_room;

/// An error of the class `Memintro::<name>`; a `RuntimeError` if the Ruby side was not loaded.
pub(crate) fn error(ruby: &Ruby, name: &str, message: impl Into<String>) -> Error {
    Error::new(class(ruby, name), message.into())
}

/// `NoMemoryError`, unless the process may take some more memory: see [`has_room`].
pub(crate) fn need_room(ruby: &Ruby) -> Result<(), Error> {
    if has_room() { Ok(()) } else { Err(no_room(ruby)) }
}

/// The error where [`has_room`] is false.
pub(crate) fn no_room(ruby: &Ruby) -> Error {
    Error::new(
        ruby.exception_no_mem_error(),
        "memintro needs 4 MiB of memory for this, which the system or a limit (ulimit -v, ulimit -d) refuses; raise \
         the limit",
    )
}

/// The error for a status of the hook that is not a success.
pub(crate) fn from_status(ruby: &Ruby, status: Status) -> Error {
    match status {
        Status::NO_MEMORY => in_its_own_words(ruby, "ExhaustedError"),
        Status::DISABLED => in_its_own_words(ruby, "DisabledError"),
        Status::NO_ALLOCATOR => in_its_own_words(ruby, "AllocatorError"),
        Status::BUSY => in_its_own_words(ruby, "BusyError"),
        Status::FIGURES_LOST => error(
            ruby,
            "Error",
            "this process was forked while another thread was changing the figures, so they are lost here; what was \
             tracked goes on in its parent. Track in another child, or fork again. (Or a thread has left malloc half-way, \
             by an asynchronous cancellation or a longjmp: then track in a new process)",
        ),
        Status::UNREADABLE => error(
            ruby,
            "Error",
            "the kernel no longer lets this process read its own memory (process_vm_readv), where memintro's records of blocks \
             are: a seccomp filter was added after the start. The sums of each line are right. To list blocks, start the \
             program with MEMINTRO_RECORDS=table",
        ),
        Status::BAD_OPTION => error(ruby, "Error", "the hook does not accept these options"),
        Status::IO => {
            let cause = std::io::Error::last_os_error();
            error(ruby, "Error", format!("the dump could not be written: {cause}"))
        }
        other => error(
            ruby,
            "Error",
            format!(
                "the hook returned the unknown status {}; the hook and the extension may be of different versions",
                other.0
            ),
        ),
    }
}

/// With the default message of the class.
fn in_its_own_words(ruby: &Ruby, name: &str) -> Error {
    class(ruby, name).new_instance(()).map_or_else(|error| error, Error::from)
}

fn class(ruby: &Ruby, name: &str) -> ExceptionClass {
    ruby.class_object()
        .const_get::<_, RModule>("Memintro")
        .and_then(|memintro| memintro.const_get::<_, ExceptionClass>(name))
        .unwrap_or_else(|_| ruby.exception_runtime_error())
}
