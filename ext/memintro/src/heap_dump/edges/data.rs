//! Parts of Ruby's own data objects: threads, fibers, enumerators, locks, queues and the like.
//!
//! | what | where | Rubies | without it |
//! |---|---|---|---|
//! | a thread's value, once it has ended | the word behind that of its group, which is found in the running thread | 3.1 to 3.4 | no name |
//! | an exception of a thread or fiber | the word of its context that is set for a moment | all | no name |
//! | receiver, arguments, fiber, next value and others of an enumerator | words 0, 2 to 9, if a sample has them so | 3.1 to 3.4 | no name |
//! | other parts | references of Ruby's that have the type of only one part ([`PARTS`]) | all | no name |
//!
//! Types are compared by their addresses where samples have them, because an extension may call its own types the same.

use std::sync::OnceLock;

use magnus::{RArray, Ruby, Value, rb_sys::AsRawValue};
use rb_sys::VALUE;

use super::classes::{METHOD_CACHE, each_child};
use super::layout::Layout;
use super::memory::{is_address, word};
use super::{EdgeName, Visit};
use crate::atlas::{DataType, Object, RUBY, types};
use crate::vm::Probe;

/// What a part is.
#[derive(Clone, Copy)]
enum Part {
    /// A data object of this type.
    Data(&'static [u8]),
    /// An object of this type of Ruby's.
    Kind(usize),
    /// One that only the VM sees.
    Hidden(usize),
}

/// The type of an object, the type of a part, and the part's name.
const PARTS: [(&[u8], Part, &[u8]); 31] = [
    (b"VM/thread", Part::Data(b"fiber"), b"fiber"),
    (b"VM/thread", Part::Data(b"thgroup"), b"group"),
    (b"VM/thread", Part::Data(b"ractor"), b"ractor"),
    (b"VM/thread", Part::Data(b"proc"), b"block"),
    (b"VM/thread", Part::Data(b"mutex"), b"mutex"),
    (b"VM/thread", Part::Hidden(types::T_ARRAY), b"interrupts"),
    (b"fiber", Part::Data(b"fiber"), b"resumer"),
    (b"fiber", Part::Data(b"proc"), b"block"),
    (b"fiber", Part::Data(b"VM/thread"), b"thread"),
    (b"mutex", Part::Data(b"fiber"), b"owner"),
    (b"mutex", Part::Data(b"VM/thread"), b"owner"),
    (b"queue", Part::Kind(types::T_ARRAY), b"items"),
    (b"sized_queue", Part::Kind(types::T_ARRAY), b"items"),
    (b"generator", Part::Data(b"proc"), b"block"),
    (b"chain", Part::Kind(types::T_ARRAY), b"enumerators"),
    (b"ractor", Part::Data(b"VM/thread"), b"thread"),
    (b"tracepoint", Part::Data(b"proc"), b"block"),
    (b"weakmap", Part::Data(b"proc"), b"finalizer"),
    (b"yielder", Part::Data(b"proc"), b"block"),
    (b"proc_entry", Part::Data(b"proc"), b"block"),
    (b"binding", Part::Kind(types::T_STRING), b"path"),
    (b"binding", Part::Hidden(types::T_ARRAY), b"path"),
    (b"dir", Part::Kind(types::T_STRING), b"path"),
    (b"monitor", Part::Data(b"mutex"), b"mutex"),
    (b"monitor", Part::Data(b"VM/thread"), b"owner"),
    (b"monitor", Part::Data(b"fiber"), b"owner"),
    (b"strio", Part::Kind(types::T_STRING), b"string"),
    (b"StringScanner", Part::Kind(types::T_STRING), b"string"),
    (b"StringScanner", Part::Kind(types::T_REGEXP), b"pattern"),
    (b"backtrace", Part::Kind(types::T_ARRAY), b"lines"),
    (METHOD_CACHE, Part::Kind(types::T_IMEMO), b"cache of methods"),
];

/// Words of an enumerator's structure.
const ENUMERATOR: [(usize, &[u8]); 9] = [
    (0, b"receiver"),
    (2, b"arguments"),
    (3, b"fiber"),
    (4, b"caller"),
    (5, b"next value"),
    (6, b"fed value"),
    (7, b"end"),
    (8, b"size"),
    (9, b"steps"),
];

/// Names of types that an extension may have, too.
const COMMON: [&[u8]; 5] = [b"mutex", b"queue", b"sized_queue", b"generator", b"chain"];

struct Places {
    /// The types of [`COMMON`].
    types: [Option<DataType>; COMMON.len()],
    enumerators: bool,
    /// The word of a thread's structure that has its value.
    value: Option<usize>,
    /// The word of a context that has an exception.
    exception: Option<usize>,
}

static PLACES: OnceLock<Option<Places>> = OnceLock::new();

/// One of each type of [`COMMON`] in their order, an enumerator with an argument, the argument, and its receiver. What this
/// Ruby lacks is nil.
const SAMPLES: &str = "
proc do
  receiver, argument = [[1]], Object.new
  enumerator = receiver.each_entry(argument)
  common = [Thread::Mutex.new, Thread::Queue.new, Thread::SizedQueue.new(1), nil, enumerator + enumerator]
  [*common, enumerator, argument, receiver, Enumerator.new { nil }]
end.call
";

/// Once, under the GVL.
pub(super) fn prepare() {
    if PLACES.get().is_none() {
        let _ = PLACES.set(find());
    }
}

fn find() -> Option<Places> {
    let ruby = Ruby::get().ok()?;
    let probe = Probe::new()?;
    let mut places = Places {
        types: [None; COMMON.len()],
        enumerators: false,
        value: value(&ruby, &probe),
        exception: exception(&probe),
    };
    if let Ok(samples) = ruby.eval::<RArray>(SAMPLES) {
        let sample =
            |index: usize| samples.entry::<Value>(index as isize).map_or(0, |value| value.as_raw() as usize);
        // SAFETY: objects that the array keeps.
        let read = |index: usize| {
            Some(sample(index))
                .filter(|address| is_address(*address))
                // SAFETY: one of those.
                .map(|address| unsafe { Object::read(address) })
        };
        for (index, (place, name)) in places.types.iter_mut().zip(COMMON).enumerate() {
            if let Some(object) = read(index).filter(|object| object.type_name() == name) {
                *place = Some(object.data_type());
            }
        }
        let [enumerator, argument, receiver] = [5, 6, 7].map(sample);
        places.enumerators =
            read(5).and_then(|object| probe.words::<10>(object.structure())).is_some_and(|words| {
                let arguments = words[2];
                let is_array = is_address(arguments)
                    && probe
                        .words::<1>(arguments)
                        .is_some_and(|[flags]| flags & types::MASK == types::T_ARRAY);
                // SAFETY: an array.
                let first = is_array
                    .then(|| unsafe { Object::read(arguments) })
                    .and_then(|array| super::elements(array).first());
                enumerator != 0
                    && words[0] == receiver
                    && first.is_some_and(|first| *first as usize == argument)
            });
        // An enumerator over a block has a generator for its receiver.
        if let Some([generator]) = read(8).and_then(|object| probe.words::<1>(object.structure()))
            && is_address(generator)
        {
            // SAFETY: what an enumerator refers to.
            let generator = unsafe { Object::read(generator) };
            if generator.type_name() == b"generator" {
                places.types[3] = Some(generator.data_type());
            }
        }
        std::hint::black_box(samples);
    }
    Some(places)
}

/// Behind the one word of the running thread that has its group. A thread that runs has no value.
fn value(ruby: &Ruby, probe: &Probe) -> Option<usize> {
    const WORDS: usize = 96;
    if !RUBY.has_value_behind_group {
        return None;
    }
    let list: RArray = ruby.eval("Thread.list").ok()?;
    let mut found = None;
    for thread in list.into_iter() {
        // SAFETY: a thread, which the list keeps.
        let thread = unsafe { Object::read(thread.as_raw() as usize) };
        let words = probe.words::<WORDS>(thread.structure())?;
        let is_group = |word: &usize| is_address(*word) && is_of_type(probe, *word, b"thgroup");
        let mut groups = words.iter().enumerate().filter(|(_, word)| is_group(word)).map(|(index, _)| index);
        let (Some(group), None) = (groups.next(), groups.next()) else { return None };
        let value = *words.get(group + 1)?;
        if is_address(value) || found.is_some_and(|found| found != group + 1) {
            return None;
        }
        found = Some(group + 1);
    }
    found
}

/// Whether a guessed data object has a type of this name.
fn is_of_type(probe: &Probe, object: usize, name: &[u8]) -> bool {
    let text = || {
        let [flags, _, second, third] = probe.words::<4>(object)?;
        let DataType::Typed(of) = DataType::of(flags, second, third) else { return None };
        if flags & types::MASK != types::T_DATA {
            return None;
        }
        let [text] = probe.words::<1>(of)?;
        let [first] = probe.words::<1>(text)?;
        Some(first.to_le_bytes())
    };
    // Compared with the end of the text.
    text().is_some_and(|bytes| bytes.starts_with(name) && bytes.get(name.len()) == Some(&0))
}

/// The one word of the running context that is set when an exception is.
fn exception(probe: &Probe) -> Option<usize> {
    const WORDS: usize = 64;
    let (context, _) = crate::vm::own_context()?;
    let class = magnus::rb_sys::protect(|| {
        // SAFETY: makes an exception, which this stack keeps.
        unsafe { rb_sys::rb_exc_new(rb_sys::rb_eStandardError, c"".as_ptr(), 0) }
    });
    let sample = class.ok()?;
    // SAFETY: under the GVL. What was there is put back at once.
    let words = unsafe {
        let before = rb_sys::rb_errinfo();
        rb_sys::rb_set_errinfo(sample);
        let words = probe.words::<WORDS>(context);
        rb_sys::rb_set_errinfo(before);
        words?
    };
    let mut found = words.iter().enumerate().filter(|(_, word)| **word == sample as usize);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// Parts of a data object of Ruby, which come after those that have names of their own.
pub(super) fn parts(layout: &Layout, object: Object, visit: Visit<'_>) {
    let Some(Some(places)) = PLACES.get() else { return };
    let own = object.type_name();
    if own == b"enumerator" && places.enumerators {
        enumerator(object, visit);
    }
    let index = COMMON.iter().position(|name| *name == own);
    let is_rubys = index.is_none_or(|index| places.types.get(index) == Some(&Some(object.data_type())));
    if !is_rubys || !PARTS.iter().any(|(name, ..)| *name == own) {
        return;
    }
    each_child(layout, object, &mut |child| {
        // A fiber refers to itself.
        if child.address == object.address {
            return;
        }
        let fits = |part: Part| match part {
            Part::Data(name) => child.type_name() == name,
            Part::Kind(kind) => child.kind() == kind,
            Part::Hidden(kind) => child.kind() == kind && child.word(1) == 0,
        };
        if let Some((_, _, name)) = PARTS.iter().find(|(name, part, _)| *name == own && fits(*part)) {
            visit(child.value(), EdgeName::Text(name));
        }
    });
}

fn enumerator(object: Object, visit: Visit<'_>) {
    let start = object.structure();
    if !is_address(start) {
        return;
    }
    for (index, name) in ENUMERATOR {
        // SAFETY: an enumerator's structure has so many words.
        let part = unsafe { word(start, index) };
        if is_address(part) {
            visit(part as VALUE, EdgeName::Text(name));
        }
    }
}

/// The value of a thread that has ended.
pub(super) fn value_of_thread(thread: Object, visit: Visit<'_>) {
    let Some(Some(Places { value: Some(place), .. })) = PLACES.get() else { return };
    let start = thread.structure();
    if is_address(start) {
        // SAFETY: a thread's structure, which has so many words.
        let value = unsafe { word(start, *place) };
        if is_address(value) {
            visit(value as VALUE, EdgeName::Text(b"value"));
        }
    }
}

/// The exception that a context has.
///
/// # Safety
/// At the address is a context.
pub(super) unsafe fn exception_of(context: usize, visit: Visit<'_>) {
    let Some(Some(Places { exception: Some(place), .. })) = PLACES.get() else { return };
    // SAFETY: the caller's promise; a context has so many words.
    let exception = unsafe { word(context, *place) };
    if is_address(exception) {
        visit(exception as VALUE, EdgeName::Text(b"exception"));
    }
}
