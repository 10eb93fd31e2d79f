//! `Memintro::Native::JSONDocument`: JSON that is made without the GVL and sent from Rust's memory, so that it is never a
//! Ruby String.

use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use magnus::typed_data::Obj;
use magnus::{Error, RHash, RModule, RString, Ruby, function, method, prelude::*};
use memintro_analysis::buffer::Buffer;
use memintro_analysis::json::{self, Bytes};

use super::report::Report;
use super::survey::HeapSurvey;
use super::values;
use super::without_gvl::without_gvl;

/// How long a send waits for a client that takes nothing, and how long it serves one that does, before other clients
/// are served.
const PATIENCE_MS: libc::c_int = 20;
const TURN: Duration = Duration::from_millis(100);

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("JSONDocument", ruby.class_object())?;
    super::know_class::<JsonDocument>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("snapshot", function!(JsonDocument::snapshot, 4))?;
    class.define_method("bytesize", method!(JsonDocument::bytesize, 0))?;
    class.define_method("left", method!(JsonDocument::left, 0))?;
    class.define_method("send_to", method!(JsonDocument::send_to, 1))?;
    class.define_method("piece", method!(JsonDocument::piece, 1))?;
    class.define_method("clear", method!(JsonDocument::clear, 0))?;
    class.define_method("to_s", method!(JsonDocument::to_s, 0))
}

#[derive(Default)]
struct Sending {
    text: Buffer,
    sent: usize,
}

/// The text, and how much of it has been sent.
#[magnus::wrap(class = "Memintro::Native::JSONDocument", free_immediately)]
pub(super) struct JsonDocument(RefCell<Sending>);

impl JsonDocument {
    /// The members of the hash, `call_sites`, and the results of the survey. `free_pages` is the number of pages that
    /// Ruby keeps besides those that were walked over.
    fn snapshot(
        ruby: &Ruby,
        head: RHash,
        report: Obj<Report>,
        survey: Obj<HeapSurvey>,
        free_pages: u64,
    ) -> Result<Self, Error> {
        let head = values::members(head, Bytes::Exact)?;
        let report = report.model();
        survey.read(ruby, |heap| {
            Self::written(ruby, |out| {
                write!(out, "{{{}\"call_sites\":", comma(&head, "", ",\n"))?;
                json::sites(out, &report.sites, Bytes::Exact)?;
                json::heap(out, heap, free_pages)?;
                out.write_all(b"}\n")
            })
        })?
    }

    pub(super) fn written(
        ruby: &Ruby,
        write: impl FnOnce(&mut Buffer) -> std::io::Result<()>,
    ) -> Result<Self, Error> {
        let written = without_gvl(|| {
            let mut text = Buffer::new();
            write(&mut text).map(|()| text)
        })?;
        match written {
            Ok(text) => Ok(Self(RefCell::new(Sending { text, sent: 0 }))),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                Err(Error::new(ruby.exception_arg_error(), error.to_string()))
            }
            Err(error) => {
                Err(Error::new(ruby.exception_no_mem_error(), format!("no memory for the text: {error}")))
            }
        }
    }

    /// Bytes of all of it.
    fn bytesize(&self) -> usize {
        self.0.try_borrow().map_or(0, |sending| sending.text.len())
    }

    /// Bytes that are not sent yet.
    fn left(&self) -> usize {
        self.0.try_borrow().map_or(0, |sending| sending.text.len() - sending.sent)
    }

    /// The next piece of the text that is not sent, of at most so many bytes, cut behind a line where possible; nil: there
    /// is none.
    fn piece(ruby: &Ruby, this: &Self, most: usize) -> Option<RString> {
        let mut sending = this.0.try_borrow_mut().ok()?;
        let Sending { text, sent } = &mut *sending;
        let rest = text.get(*sent..).filter(|rest| !rest.is_empty())?;
        let mut length = rest.len().min(most.max(4));
        if length < rest.len() {
            let line = rest.get(..length).and_then(|part| part.iter().rposition(|byte| *byte == b'\n'));
            // Otherwise between two characters.
            let is_inside = |at: usize| rest.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
            length = line
                .map_or_else(|| (1..=length).rev().find(|at| !is_inside(*at)).unwrap_or(length), |at| at + 1);
        }
        *sent += length;
        Some(super::names::string(ruby, rest.get(..length)?))
    }

    /// Sends as much as the client takes, while other threads run. Returns the number of bytes, or a negative error
    /// number.
    fn send_to(&self, descriptor: i32) -> Result<i64, Error> {
        let Ok(mut sending) = self.0.try_borrow_mut() else { return Ok(0) };
        let Sending { text, sent } = &mut *sending;
        let before = *sent;
        let error = without_gvl(|| send(descriptor, text, sent))?;
        let taken = (*sent - before) as i64;
        Ok(if taken > 0 { taken } else { -i64::from(error) })
    }

    /// Frees the memory.
    fn clear(&self) {
        if let Ok(mut sending) = self.0.try_borrow_mut() {
            *sending = Sending::default();
        }
    }

    /// The whole text as a String.
    fn to_s(ruby: &Ruby, this: &Self) -> RString {
        let text =
            this.0.try_borrow().map_or_else(|_| String::new(), |it| String::from_utf8_lossy(&it.text).into());
        ruby.str_new(&text)
    }
}

/// 0, or the number of an error.
fn send(descriptor: i32, text: &[u8], sent: &mut usize) -> i32 {
    let begun = Instant::now();
    while let Some(rest) = text.get(*sent..).filter(|rest| !rest.is_empty()) {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the bytes are there, and sending changes nothing of this process.
        let taken = unsafe { libc::send(descriptor, rest.as_ptr().cast(), rest.len(), flags) };
        if let Ok(taken) = usize::try_from(taken) {
            *sent += taken;
        } else {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            match error {
                libc::EINTR => {}
                libc::EAGAIN => {
                    let mut waiting = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
                    // SAFETY: one valid record.
                    if unsafe { libc::poll(&raw mut waiting, 1, PATIENCE_MS) } <= 0 {
                        return 0;
                    }
                }
                _ => return error,
            }
        }
        if begun.elapsed() >= TURN {
            return 0;
        }
    }
    0
}

/// The members, with this text before and after them if there are any.
fn comma(members: &str, before: &str, after: &str) -> String {
    if members.is_empty() { String::new() } else { format!("{before}{members}{after}") }
}
