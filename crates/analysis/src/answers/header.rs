//! The line that an answer begins with, and the line of a refusal.

use std::sync::LazyLock;

use serde_json::Value;

use super::kinds::{count, flag, object, text, word};
use super::{Json, Kind, Maker, Wrong, read};

static ACCEPTED: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        ok: flag();
        memintro?: word();
        protocol?: count();
        program?: text();
        bytes?: count();
        format?: Kind::OneOf(&["json", "text"]);
    }
});
static REFUSED: LazyLock<Kind> = LazyLock::new(|| {
    object! {
        ok: flag();
        memintro?: word();
        protocol?: count();
        error: text();
        message: text();
    }
});
/// What says which of both a line is.
static EITHER: LazyLock<Kind> = LazyLock::new(|| object! { ok?: Kind::Plain; bytes?: Kind::Plain; });

/// A line that is one.
#[derive(Clone, Debug, PartialEq)]
pub enum Header<V> {
    /// So many bytes follow, or pieces if that is not known.
    Accepted(V, Option<u64>),
    /// There is no answer, and why.
    Refused(V),
}

/// A line that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoHeader {
    /// It is a line of another protocol.
    Strange,
    /// This is wrong in it.
    Wrong(String),
}

/// Reads the line before an answer of at most so many bytes.
///
/// # Errors
/// [`NoHeader`] says what it is instead.
pub fn header<M: Maker>(line: &[u8], most: u64, maker: &M) -> Result<Header<M::Value>, NoHeader> {
    let either = read(line, &EITHER, "the header", &Json).map_err(|_| NoHeader::Strange)?;
    let of = |kind| read(line, kind, "the header", maker).map_err(|wrong| NoHeader::Wrong(wrong.to_string()));
    match either.get("ok").and_then(Value::as_bool) {
        Some(true) => {
            let header = of(&*ACCEPTED)?;
            let bytes = either.get("bytes").and_then(Value::as_u64);
            match bytes.filter(|bytes| *bytes > most) {
                Some(bytes) => Err(NoHeader::Wrong(format!("it has {bytes} bytes, and may have {most}"))),
                None => Ok(Header::Accepted(header, bytes)),
            }
        }
        Some(false) => of(&*REFUSED).map(Header::Refused),
        None => Err(NoHeader::Strange),
    }
}

/// The same of a number that is another one's: any program may listen at a socket.
///
/// # Errors
/// [`Wrong`] if the process says that it is another one.
pub fn check_pid(said: u64, pid: u64) -> Result<(), Wrong> {
    if said == pid {
        return Ok(());
    }
    Err(Wrong::Value(format!("pid is {said}; it must be {pid}, as its socket says")))
}
