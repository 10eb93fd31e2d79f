//! Memintro's error classes for Rust. They are defined in `lib/memintro/error.rb`.

use std::sync::OnceLock;

use magnus::{Error, Exception, ExceptionClass, RModule, Ruby, Value, kwargs, prelude::*, value::Opaque};
use memintro_abi::Status;

use crate::copy::own_memory::{has_room, may_take};

/// An error of the class `Memintro::<name>`; a `RuntimeError` if the Ruby side was not loaded.
pub(crate) fn error(ruby: &Ruby, name: &str, message: impl Into<String>) -> Error {
    Error::new(class(ruby, name), message.into())
}

const NO_ROOM: &str = "memintro needs 4 MiB of memory for this, which the system or a limit (ulimit -v, ulimit -d) \
                       refuses; raise the limit";

/// What is raised where Ruby may have no memory for another error.
static READY: OnceLock<Opaque<Exception>> = OnceLock::new();

/// Makes the error above. It has no backtrace and no cause, and Ruby takes memory for neither when it is raised.
pub(super) fn init(ruby: &Ruby) -> Result<(), Error> {
    let error = ruby.exception_no_mem_error().new_instance((NO_ROOM,))?;
    // Ruby sets the cause of an error once: to that here, which is none.
    let raised =
        ruby.module_kernel().funcall::<_, _, Value>("raise", (error, kwargs!(ruby, "cause" => ruby.qnil())));
    drop(raised);
    error.funcall::<_, _, Value>("set_backtrace", (ruby.ary_new(),))?;
    ruby.gc_register_mark_object(error);
    let _ = READY.set(error.into());
    Ok(())
}

/// `NoMemoryError`, unless the process may take some more memory: see [`has_room`].
pub(crate) fn need_room(ruby: &Ruby) -> Result<(), Error> {
    if has_room() { Ok(()) } else { Err(no_room(ruby)) }
}

/// The error where [`has_room`] is false.
pub(crate) fn no_room(ruby: &Ruby) -> Error {
    need_room_for_errors(ruby).err().unwrap_or_else(|| Error::new(ruby.exception_no_mem_error(), NO_ROOM))
}

/// `NoMemoryError`, unless Ruby has memory for an error that says more. Where it has no memory for an object, Ruby 3.3
/// computes for ever (bug 20942 of its tracker), and Ruby 3.4 ends the process.
pub(crate) fn need_room_for_errors(ruby: &Ruby) -> Result<(), Error> {
    // Pages of its heap have 64 KiB, and each size of an object may need one.
    if may_take(1 << 20) {
        return Ok(());
    }
    READY.get().map_or(Ok(()), |error| Err(ruby.get_inner(*error).into()))
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
