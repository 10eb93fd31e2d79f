//! `Memintro::Native::HeapAsking`: a question to the tool about the heap of this process, for Ruby.

use std::cell::RefCell;
use std::ffi::CString;
use std::time::{Duration, Instant};

use magnus::{Error, RArray, RModule, RString, Ruby, function, method, prelude::*};

use super::errors;
use super::heap::checked;
use super::without_gvl::{wait_without_gvl, without_gvl};
use crate::copy;
use crate::heap_dump::{self, Asking, Outcome, Question, Redaction, Refused};

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("HeapAsking", ruby.class_object())?;
    super::know_class::<HeapAsking>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(HeapAsking::new, 0))?;
    class.define_singleton_method("may_run", function!(HeapAsking::may_run, 1))?;
    class.define_method("begin", method!(HeapAsking::begin, 7))?;
    class.define_method("wait", method!(HeapAsking::wait, 1))?;
    class.define_method("progress", method!(HeapAsking::progress, 0))?;
    class.define_method("answer", method!(HeapAsking::answer, 0))?;
    class.define_method("pause_ms", method!(HeapAsking::pause_ms, 0))?;
    class.define_method("close", method!(HeapAsking::close, 0))
}

/// The copy and the tool; ended by `close`.
#[magnus::wrap(class = "Memintro::Native::HeapAsking", free_immediately)]
pub(super) struct HeapAsking(RefCell<Option<Asking>>);

impl HeapAsking {
    /// Without a copy. Its maker keeps it before there is one: Ruby may interrupt the thread when a method returns, and what it
    /// made would be lost.
    fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Makes the copy. `arguments`: the tool's path first. `head`: JSON for the first line, with a comma before it.
    #[expect(clippy::too_many_arguments, reason = "they are those of a Ruby method")]
    fn begin(
        ruby: &Ruby,
        this: &Self,
        arguments: RArray,
        head: RString,
        redaction: Vec<String>,
        seconds: u32,
        skipped: Vec<usize>,
        ractors: bool,
        needs_births: bool,
    ) -> Result<(), Error> {
        let arguments = (0..arguments.len())
            .map(|index| {
                let text: RString = arguments.entry(index as isize)?;
                // SAFETY: copied at once.
                CString::new(unsafe { text.as_slice() }).map_err(|_| {
                    Error::new(
                        ruby.exception_arg_error(),
                        format!("{text:?} has a zero byte, which no argument may have"),
                    )
                })
            })
            .collect::<Result<_, Error>>()?;
        // SAFETY: copied at once.
        let head = unsafe { head.as_slice() }.to_vec();
        let redaction = Redaction::from_words(&redaction).map_err(|word| {
            Error::new(ruby.exception_arg_error(), format!("{word:?} is nothing that a dump can leave out"))
        })?;
        let question = Question { arguments, redaction, seconds, skipped, ractors, head, needs_births };
        match heap_dump::begin(ruby, question) {
            Ok(asking) => {
                if let Ok(mut place) = this.0.try_borrow_mut() {
                    *place = Some(asking);
                }
                Ok(())
            }
            Err(Refused::Heap(trouble)) => checked(ruby, Err(trouble)),
            Err(Refused::Raised(error)) => Err(error),
            Err(Refused::Hook(status)) => Err(errors::from_status(ruby, status)),
            Err(Refused::Missing(names)) => Err(errors::error(
                ruby,
                "UnknownRubyError",
                format!(
                    "this Ruby has no function {}, which a dump of its heap needs; docs/ruby_versions.md lists the versions that work",
                    names.join(", ")
                ),
            )),
            Err(Refused::System(error)) => errors::need_room_for_errors(ruby).and(Err(errors::error(
                ruby,
                "HeapDumpError",
                format!(
                    "this process cannot be copied, and without a copy its heap is not read: {}",
                    copy::refusal(&error)
                ),
            ))),
        }
    }

    /// Whether this user may run the program. Ruby's own question gives up the GVL, and waits for it where others compute.
    fn may_run(path: RString) -> bool {
        // SAFETY: copied at once.
        let path = CString::new(unsafe { path.as_slice() });
        path.is_ok_and(|path| {
            // SAFETY: a terminated path.
            unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
        })
    }

    /// Waits so many milliseconds, during which other threads run. Nil while it is under way; then `[outcome, number]`.
    fn wait(ruby: &Ruby, this: &Self, milliseconds: u64) -> Result<Option<RArray>, Error> {
        let Ok(mut asking) = this.0.try_borrow_mut() else { return Ok(None) };
        let Some(asking) = asking.as_mut() else { return Ok(None) };
        let due = Instant::now() + Duration::from_millis(milliseconds);
        let outcome = wait_without_gvl(|interrupted| asking.wait(due, interrupted))?;
        let (name, number) = match outcome {
            None => return Ok(None),
            Some(Outcome::Answered) => ("answered", 0),
            Some(Outcome::ToolFailed(status)) => ("tool_failed", i64::from(status)),
            Some(Outcome::NoTool(error)) => ("no_tool", i64::from(error)),
            Some(Outcome::Stuck(data_type)) => ("stuck", data_type as i64),
            Some(Outcome::TooLate) => ("too_late", 0),
            Some(Outcome::Killed) => ("killed", 0),
            Some(Outcome::NoMemory) => ("no_memory", 0),
        };
        let row = ruby.ary_new_capa(2);
        row.push(ruby.to_symbol(name))?;
        row.push(number)?;
        Ok(Some(row))
    }

    /// `[objects, bytes]` so far.
    fn progress(&self) -> (u64, u64) {
        self.0.try_borrow().ok().and_then(|asking| asking.as_ref().map(Asking::progress)).unwrap_or_default()
    }

    /// `[what the tool printed, what it complained of]`.
    fn answer(ruby: &Ruby, this: &Self) -> Result<RArray, Error> {
        let (answer, complaints) = this
            .0
            .try_borrow_mut()
            .ok()
            .and_then(|mut asking| asking.as_mut().map(Asking::take_answer))
            .unwrap_or_default();
        let row = ruby.ary_new_capa(2);
        row.push(ruby.str_from_slice(&answer))?;
        row.push(ruby.str_from_slice(&complaints))?;
        Ok(row)
    }

    /// For how long Ruby stood still.
    fn pause_ms(&self) -> f64 {
        self.0
            .try_borrow()
            .ok()
            .and_then(|asking| asking.as_ref().map(|asking| asking.pause.as_secs_f64() * 1e3))
            .unwrap_or_default()
    }

    /// Ends the copy and the tool, if they are still there.
    fn close(&self) -> Result<(), Error> {
        // To end a copy takes time; what is left of one that has ended does not.
        match self.0.try_borrow_mut().ok().and_then(|mut asking| asking.take()) {
            Some(asking) if !asking.has_ended() => without_gvl(|| drop(asking)),
            _ => Ok(()),
        }
    }
}
