//! Threads and fibers: local variables of their frames, and values by name.
//!
//! | what | where | Rubies |
//! |---|---|---|
//! | the VM stack, its length in words, the innermost frame | words 0, 1, 2 of a context | 3.1 to 3.4 |
//! | counter, top of its stack, code, self, environment pointer | words 0 to 4 of a frame | 3.1 to 3.4 |
//! | local variables | before the pointer, with two words between; of a frame whose environment is an object, in that | 3.1 to 3.4 |

use rb_sys::VALUE;

use super::closures::{self, is_iseq, locals_of, place_of_iseq};
use super::layout::{Layout, Threads};
use super::memory::{each_entry, is_address, name_of_serial, word};
use super::{EdgeName, OURS, Place, Visit};
use crate::atlas::Object;

const WORD: usize = size_of::<usize>();
/// Frames of one stack that are looked at.
const MOST_FRAMES: usize = 100_000;

/// A VM stack.
#[derive(Clone, Copy)]
struct Stack {
    start: usize,
    end: usize,
    innermost: usize,
    stride: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    counter: usize,
    top: usize,
    /// 0 for a method that is written in C.
    code: usize,
    receiver: usize,
    pointer: usize,
}

impl Stack {
    /// # Safety
    /// At the address is a context, or it is 0.
    unsafe fn of(context: usize, stride: usize) -> Option<Self> {
        if !is_address(context) {
            return None;
        }
        // SAFETY: the caller's promise.
        let (start, length, innermost) = unsafe { (word(context, 0), word(context, 1), word(context, 2)) };
        let end = start.wrapping_add(length.wrapping_mul(WORD));
        let fits = is_address(start)
            && start < innermost
            && innermost <= end
            && (end - innermost).is_multiple_of(stride * WORD);
        fits.then_some(Self { start, end, innermost, stride })
    }

    fn frames(self) -> impl Iterator<Item = Frame> {
        (self.innermost..self.end).step_by(self.stride * WORD).take(MOST_FRAMES).map(|frame| {
            // SAFETY: between the innermost frame and the end of the stack there are whole frames.
            unsafe {
                Frame {
                    counter: word(frame, 0),
                    top: word(frame, 1),
                    code: word(frame, 2),
                    receiver: word(frame, 3),
                    pointer: word(frame, 4),
                }
            }
        })
    }

    fn has(self, address: usize) -> bool {
        address.is_multiple_of(WORD) && self.start <= address && address < self.innermost
    }
}

impl Frame {
    fn is_of_ruby(self) -> bool {
        // SAFETY: the third word of a frame is its code, or 0.
        self.counter != 0 && unsafe { is_iseq(self.code) }
    }

    /// Path and running line.
    fn place(self, layout: &Layout) -> Option<Place<'static>> {
        let mut place = place_of_iseq(layout, self.code)?;
        // SAFETY: a finished sequence has a body, which begins with its length and its instructions.
        unsafe {
            let body = word(self.code, 2);
            let (length, instructions) = (word(body, 0) >> 32, word(body, 1));
            let at = self.counter.wrapping_sub(instructions) / WORD;
            if at <= length {
                place.line = (layout.functions.line_of)(self.code as VALUE, at.saturating_sub(1)) as usize;
            }
        }
        Some(place)
    }
}

/// ` at main.rb:30`, on the stack.
struct At {
    bytes: [u8; 300],
    length: usize,
}

impl At {
    fn new(place: Option<Place<'_>>) -> Self {
        let mut at = Self { bytes: [0; 300], length: 0 };
        if let Some(place) = place {
            const LONGEST: usize = 240;
            at.push(b" at ");
            // The end of a long path.
            at.push(place.path.get(place.path.len().saturating_sub(LONGEST)..).unwrap_or(place.path));
            at.push(b":");
            let (mut digits, mut line, mut first) = ([b'0'; 20], place.line, 20);
            while first > 0 && (line > 0 || first == 20) {
                first -= 1;
                digits[first] = b'0' + (line % 10) as u8;
                line /= 10;
            }
            at.push(&digits[first..]);
        }
        at
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Whose frame it is, seen from the innermost one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    /// The frame that called us: its arguments to us are ours.
    Caller,
    Program,
}

fn frames(layout: &Layout, stack: Stack, asks: bool, visit: Visit<'_>) {
    let mut owner = if asks { Owner::Ours } else { Owner::Program };
    let mut rows = stack.frames().peekable();
    while let Some(frame) = rows.next() {
        let below = rows.peek().map_or(stack.start, |caller| caller.top);
        let place = if frame.is_of_ruby() { frame.place(layout) } else { None };
        if frame.is_of_ruby() || owner != Owner::Ours {
            owner = owner_of(layout, place, owner);
        }
        one_frame(layout, stack, (frame, below), place, owner, visit);
    }
}

fn is_ours(layout: &Layout, place: Option<Place<'_>>) -> bool {
    // Methods of Ruby that are written in Ruby, such as `tap`, which ours call.
    const RUBYS_OWN: &[u8] = b"<internal:";
    !layout.own_folder.is_empty()
        && place.is_some_and(|place| {
            place.path.starts_with(&layout.own_folder) || place.path.starts_with(RUBYS_OWN)
        })
}

fn owner_of(layout: &Layout, place: Option<Place<'_>>, before: Owner) -> Owner {
    match before {
        Owner::Ours if is_ours(layout, place) => Owner::Ours,
        Owner::Ours => Owner::Caller,
        _ => Owner::Program,
    }
}

fn one_frame(
    layout: &Layout,
    stack: Stack,
    (frame, below): (Frame, usize),
    place: Option<Place<'_>>,
    owner: Owner,
    visit: Visit<'_>,
) {
    let at = At::new(place);
    let mut tell = |value: usize, name: EdgeName<'_>| {
        if is_address(value) {
            visit(value as VALUE, name);
        }
    };
    let named = |before: &'static [u8]| TextAt::new(before, &at);
    let words = named(b"stack");
    if owner == Owner::Ours {
        tell(frame.receiver, EdgeName::Text(OURS));
    } else {
        tell(frame.receiver, EdgeName::Text(named(b"self").text()));
    }
    if frame.is_of_ruby() {
        tell(frame.code, EdgeName::Text(b"code"));
    }
    if !stack.has(frame.pointer) {
        if is_address(frame.pointer) && frame.is_of_ruby() {
            // SAFETY: the environment is an object, whose address is behind the pointer.
            let env = unsafe { word(frame.pointer, 1) };
            let text = named(b"locals");
            tell(env, EdgeName::Text(if owner == Owner::Ours { OURS } else { text.text() }));
            // SAFETY: as above.
            unsafe { around(stack, frame.pointer, &mut tell) };
            // What was on the stack before the environment became an object is still there.
            words_of(stack, below, &frame, &mut |value| {
                tell(value, EdgeName::Text(if owner != Owner::Ours { words.text() } else { OURS }));
            });
        }
        return;
    }
    let locals = if frame.is_of_ruby() { locals_of(layout, frame.code) } else { closures::Locals::NONE };
    let first = frame.pointer.wrapping_sub((2 + locals.count) * WORD);
    for index in 0..if stack.has(first) { locals.count } else { 0 } {
        // SAFETY: on the stack, as the code has so many local variables.
        let value = unsafe { word(first, index) };
        let name = EdgeName::Name { before: b"local ", name: locals.name(index), after: at.text() };
        tell(value, if owner == Owner::Ours { EdgeName::Text(OURS) } else { name });
    }
    // SAFETY: three words up to the pointer belong to each environment.
    unsafe { around(stack, frame.pointer, &mut tell) };
    words_of(stack, frame.pointer + WORD, &frame, &mut |value| {
        tell(value, EdgeName::Text(if owner == Owner::Program { words.text() } else { OURS }));
    });
}

/// Words of a frame between local variables and its top: arguments that wait for a call, and results.
fn words_of(stack: Stack, start: usize, frame: &Frame, visit: &mut dyn FnMut(usize)) {
    let mut place = start;
    while place < frame.top && stack.has(place) {
        // SAFETY: on the stack, below the frame's top.
        visit(unsafe { word(place, 0) });
        place += WORD;
    }
}

/// The method of a frame, its block if that is an object, and the environment around it if that is one.
unsafe fn around(stack: Stack, pointer: usize, tell: &mut dyn FnMut(usize, EdgeName<'_>)) {
    const LOCAL: usize = 2;
    // SAFETY: the caller's promise.
    unsafe {
        let below = pointer - 2 * WORD;
        tell(word(below, 0), EdgeName::Text(b"method"));
        let (outer, flags) = (word(below, 1), word(pointer, 0));
        if flags & LOCAL != 0 {
            tell(outer & !3, EdgeName::Text(b"block"));
        } else if is_address(outer & !3) && !(stack.start..stack.end).contains(&(outer & !3)) {
            tell(word(outer & !3, 1), EdgeName::Text(b"outer locals"));
        }
    }
}

/// A word and a place.
struct TextAt(At);

impl TextAt {
    fn new(before: &[u8], at: &At) -> Self {
        let mut text = At { bytes: [0; 300], length: 0 };
        text.push(before);
        text.push(at.text());
        Self(text)
    }

    fn text(&self) -> &[u8] {
        self.0.text()
    }
}

/// Values that a program keeps by name in the thread's running fiber, `Thread.current[:name]`.
unsafe fn values(layout: &Layout, threads: &Threads, context: usize, visit: Visit<'_>) {
    if let Some(place) = threads.values {
        // SAFETY: the caller's promise; such a table, or 0.
        unsafe {
            each_entry(word(context, place), |serial, value| {
                if is_address(value) {
                    let name = name_of_serial(serial, layout.first_serial);
                    visit(value as VALUE, EdgeName::Name { before: b"thread-local :", name, after: b"" });
                }
            });
        }
    }
}

fn context_of_thread(threads: &Threads, object: Object) -> usize {
    let thread = object.structure();
    // SAFETY: a thread's structure, which has so many words.
    if is_address(thread) { unsafe { word(thread, threads.context) } } else { 0 }
}

fn context_of_fiber(threads: &Threads, object: Object) -> usize {
    match (object.structure(), threads.in_fiber) {
        (fiber, Some(place)) if is_address(fiber) => fiber + place * WORD,
        _ => 0,
    }
}

fn of_context(layout: &Layout, context: usize, visit: Visit<'_>) {
    let Some(threads) = layout.threads.as_ref().filter(|_| is_address(context)) else { return };
    // SAFETY: a context of a thread or fiber, which has no stack if it has ended.
    unsafe {
        values(layout, threads, context, visit);
        super::data::exception_of(context, visit);
        if let Some(stack) = Stack::of(context, threads.stride) {
            frames(layout, stack, super::layout::has_asked(context), visit);
        }
    }
}

/// What memintro's own frames, and the arguments of their caller, hold on the stack that asks.
pub(super) fn ours(layout: &Layout, visit: &mut dyn FnMut(VALUE)) {
    of_context(layout, super::layout::asking(), &mut |object, name| {
        if name.is_ours() {
            visit(object);
        }
    });
}

/// Whether a thread or fiber runs memintro's code, which asks.
pub(super) fn asks(layout: &Layout, object: VALUE) -> bool {
    // SAFETY: an object of the heap.
    let object = unsafe { Object::read(object as usize) };
    let Some(threads) = &layout.threads else { return false };
    let context = match object.type_name() {
        b"VM/thread" => context_of_thread(threads, object),
        b"fiber" => context_of_fiber(threads, object),
        _ => 0,
    };
    context != 0 && super::layout::has_asked(context)
}

pub(super) fn thread(layout: &Layout, object: Object, visit: Visit<'_>) {
    if let Some(threads) = &layout.threads {
        let context = context_of_thread(threads, object);
        // SAFETY: a context of a thread, or 0.
        if unsafe { Stack::of(context, threads.stride) }.is_none() {
            super::data::value_of_thread(object, visit);
        }
        of_context(layout, context, visit);
    }
}

pub(super) fn fiber(layout: &Layout, object: Object, visit: Visit<'_>) {
    if let Some(threads) = &layout.threads {
        of_context(layout, context_of_fiber(threads, object), visit);
    }
}

/// Where a thread or fiber is; of the one that asks, where it has called us.
fn innermost(layout: &Layout, context: usize) -> Option<Place<'static>> {
    let threads = layout.threads.as_ref()?;
    // SAFETY: a context of a thread or fiber.
    let stack = unsafe { Stack::of(context, threads.stride) }?;
    let asks = super::layout::has_asked(context);
    stack
        .frames()
        .filter(|frame| frame.is_of_ruby())
        .filter_map(|frame| frame.place(layout))
        .find(|place| place.line > 0 && !(asks && is_ours(layout, Some(*place))))
}

pub(super) fn place_of_thread(layout: &Layout, object: Object) -> Option<Place<'static>> {
    innermost(layout, context_of_thread(layout.threads.as_ref()?, object))
}

pub(super) fn place_of_fiber(layout: &Layout, object: Object) -> Option<Place<'static>> {
    innermost(layout, context_of_fiber(layout.threads.as_ref()?, object))
}
