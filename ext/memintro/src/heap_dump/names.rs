//! Names of the references of one line, in the order of the references. Allocates nothing.

use super::edges::EdgeName;
use super::output::Output;
use super::redaction::Redaction;
use super::text::Padded;
use super::vm::Vm;
use crate::atlas::{Object, types};
use crate::copy::own_memory::slice;

/// References of a line that may have names.
const MOST: usize = 1 << 24;
/// Bytes of all names of a line, and of one.
const ROOM: usize = 256 << 20;
const LONGEST: usize = 256;
/// How far from where the last one was found a child is looked for.
const NEAR: usize = 64;

/// Where a name is; its length is 0 for none.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    length: u32,
}

/// How names of instance variables stand in a line: objects of a class have the same ones.
#[derive(Clone, Copy)]
struct Known {
    /// Id of the name; 0 for none.
    id: usize,
    text: Padded<{ Known::LONGEST }>,
}

impl Known {
    /// Longer ones are rendered each time.
    const LONGEST: usize = 48;
    /// A power of two.
    const COUNT: usize = 1024;

    /// Numbers of names have their kind in the lower four bits.
    fn place(id: usize) -> usize {
        (id >> 4) & (Self::COUNT - 1)
    }
}

/// How names of objects of a class begin: `#<Foo 0x`.
#[derive(Clone, Copy)]
struct KnownClass {
    /// 0 for none.
    class: usize,
    text: Padded<{ Known::LONGEST }>,
}

impl KnownClass {
    /// A power of two.
    const COUNT: usize = 64;

    fn place(class: usize) -> usize {
        (class >> 3 ^ class >> 9) & (Self::COUNT - 1)
    }
}

/// A key that is named by its class and address.
fn plain_object(key: usize) -> Option<Object> {
    if key < 8 || key & 7 != 0 || key == rb_sys::Qnil as usize {
        return None;
    }
    // SAFETY: an object of the heap.
    let object = unsafe { Object::read(key) };
    (!matches!(object.kind(), types::T_STRING | types::T_SYMBOL)).then_some(object)
}

/// The name of a reference that was written at once.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Told {
    /// A key of a Hash.
    Key,
    /// The default value or block of a Hash.
    Default,
    /// The value under this key.
    Value(usize),
    /// An instance variable of this name.
    Variable(usize),
}

pub(super) struct Names<'a> {
    vm: &'a Vm,
    redaction: Redaction,
    references: &'static mut [usize],
    spans: &'static mut [Span],
    told: &'static mut [Told],
    known: &'static mut [Known],
    classes: &'static mut [KnownClass],
    text: Output<'a>,
    used: usize,
    at: usize,
    named: usize,
}

impl<'a> Names<'a> {
    /// `None` without memory.
    pub(super) fn new(vm: &'a Vm, redaction: Redaction, state: &'a super::state::State) -> Option<Self> {
        Some(Self {
            vm,
            redaction,
            references: slice(MOST)?,
            spans: slice(MOST)?,
            told: slice(MOST)?,
            known: slice(Known::COUNT)?,
            classes: slice(KnownClass::COUNT)?,
            text: Output::scratch(slice(ROOM)?, state),
            used: 0,
            at: 0,
            named: 0,
        })
    }

    /// Begins a line.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.at = 0;
        self.named = 0;
        self.text.clear();
    }

    /// The next reference of the line.
    #[inline]
    pub(super) fn reference(&mut self, to: usize) {
        if let (Some(place), Some(span)) = (self.references.get_mut(self.used), self.spans.get_mut(self.used))
        {
            *place = to;
            span.length = 0;
            self.used += 1;
        }
    }

    /// The name of the next reference to this child that has none.
    pub(super) fn add(&mut self, to: usize, name: EdgeName<'_>) {
        let Some(index) = self.find(to) else { return };
        self.at = index + 1;
        if self.text.room_left() < 8 * LONGEST {
            return;
        }
        let start = self.text.written().len();
        match name {
            EdgeName::Name { before: b"", name, after: b"" } => self.variable(name as usize, start),
            _ => self.quoted(name),
        }
        let length = self.text.written().len() - start;
        if let (Some(span), Ok(start), Ok(length)) =
            (self.spans.get_mut(index), u32::try_from(start), u32::try_from(length))
        {
            *span = Span { start, length };
            self.named += 1;
        }
    }

    /// The name of the reference with this number of the line.
    #[inline(always)]
    pub(super) fn tell(&mut self, number: usize, name: Told) {
        if let Some(place) = self.told.get_mut(number) {
            *place = name;
        }
    }

    /// The names of so many references.
    pub(super) fn write_told(&mut self, out: &mut Output<'_>, count: usize) {
        for number in 0..count {
            out.bytes(if number == 0 { b", \"edges\":[" } else { b", " });
            match self.told.get(number) {
                Some(Told::Key) => out.bytes(b"\"key\""),
                Some(Told::Variable(id)) => self.told_variable(*id, out),
                Some(Told::Value(key)) => self.told_value(*key, out),
                Some(Told::Default) => out.bytes(b"\"default\""),
                None => out.bytes(b"\"(internal)\""),
            }
        }
        out.bytes(b"]");
    }

    fn told_variable(&mut self, id: usize, out: &mut Output<'_>) {
        if let Some(known) = self.known.get(Known::place(id)).filter(|known| known.id == id) {
            return out.padded::<{ Known::LONGEST }, 32>(&known.text);
        }
        self.text.clear();
        self.variable(id, 0);
        out.bytes(self.text.written());
    }

    fn told_value(&mut self, key: usize, out: &mut Output<'_>) {
        if key & 1 == 1 {
            out.bytes(b"\"[");
            out.signed((key.cast_signed() >> 1) as i64);
            return out.bytes(b"]\"");
        }
        if let Some(object) = plain_object(key) {
            let class = object.word(1);
            let known = self.classes.get(KnownClass::place(class)).filter(|known| known.class == class);
            if let Some(known) = known {
                out.bytes(b"\"[");
                out.padded::<{ Known::LONGEST }, 32>(&known.text);
                out.long_address(object.address);
                return out.bytes(b">]\"");
            }
        }
        self.text.clear();
        self.quoted(EdgeName::ValueOf(key as rb_sys::VALUE));
        out.bytes(self.text.written());
    }

    fn quoted(&mut self, name: EdgeName<'_>) {
        self.text.bytes(b"\"");
        self.render(name);
        self.text.bytes(b"\"");
    }

    /// A name alone, whose text begins at `start`.
    fn variable(&mut self, id: usize, start: usize) {
        let place = Known::place(id);
        if let Some(known) = self.known.get(place).filter(|known| known.id == id) {
            self.text.padded::<{ Known::LONGEST }, 32>(&known.text);
            return;
        }
        self.quoted(EdgeName::Name { before: b"", name: id as rb_sys::ID, after: b"" });
        let text = self.text.written().get(start..).unwrap_or_default();
        if let (Some(known), Some(text)) = (self.known.get_mut(place), Padded::of(text)) {
            *known = Known { id, text };
        }
    }

    fn find(&self, to: usize) -> Option<usize> {
        let meant = |index: &usize| {
            self.references.get(*index) == Some(&to)
                && self.spans.get(*index).is_some_and(|span| span.length == 0)
        };
        let near = self.at.saturating_add(NEAR).min(self.used);
        (self.at..near).find(meant).or_else(|| (0..self.used.min(4 * NEAR)).find(meant))
    }

    fn render(&mut self, name: EdgeName<'_>) {
        match name {
            EdgeName::Text(text) => self.cut(text),
            EdgeName::Name { before, name, after } => {
                self.cut(before);
                self.name_of(name as usize);
                self.cut(after);
            }
            EdgeName::Element(index) => {
                self.text.bytes(b"[");
                self.text.number(index as u64);
                self.text.bytes(b"]");
            }
            EdgeName::ValueOf(key) => {
                self.text.bytes(b"[");
                self.key(key as usize);
                self.text.bytes(b"]");
            }
        }
    }

    fn cut(&mut self, text: &[u8]) {
        self.text.inner_text(text.get(..LONGEST).unwrap_or(text));
    }

    fn name_of(&mut self, id: usize) {
        // SAFETY: a number that stands for a name, or that Ruby does not know: then it is 0.
        let name = unsafe { (self.vm.functions.name_of)(id as rb_sys::ID) } as usize;
        if name > 8 && name & 7 == 0 {
            // SAFETY: a string of the heap.
            self.cut(unsafe { Object::read(name) }.string());
        } else {
            self.text.bytes(b"(internal)");
        }
    }

    fn key(&mut self, key: usize) {
        const FALSE: usize = rb_sys::Qfalse as usize;
        const NIL: usize = rb_sys::Qnil as usize;
        const TRUE: usize = rb_sys::Qtrue as usize;
        const SYMBOL: usize = 0x0c;
        const SHORT: usize = 64;
        match key {
            FALSE => self.text.bytes(b"false"),
            NIL => self.text.bytes(b"nil"),
            TRUE => self.text.bytes(b"true"),
            _ if key & 1 == 1 => self.text.signed((key.cast_signed() >> 1) as i64),
            _ if key & 0xff == SYMBOL => {
                self.text.bytes(b":");
                self.name_of(key >> 8);
            }
            _ if key & 7 != 0 => self.text.bytes(b"Float"),
            _ => {
                // SAFETY: an object of the heap.
                let object = unsafe { Object::read(key) };
                match object.kind() {
                    types::T_STRING if self.redaction.strings || object.string().len() > SHORT => {
                        self.text.bytes(b"String of ");
                        self.text.number(object.string().len() as u64);
                        self.text.bytes(b" bytes");
                    }
                    types::T_STRING => {
                        self.text.bytes(b"\\\"");
                        self.cut(object.string());
                        self.text.bytes(b"\\\"");
                    }
                    types::T_SYMBOL => {
                        // SAFETY: a symbol of the heap has its text.
                        let text = unsafe { (self.vm.functions.text_of_symbol)(key as rb_sys::VALUE) };
                        self.text.bytes(b":");
                        // SAFETY: a string.
                        self.cut(unsafe { Object::read(text as usize) }.string());
                    }
                    _ => self.object(object),
                }
            }
        }
    }

    /// Such as `#<Foo 0x7f…>`.
    fn object(&mut self, object: Object) {
        let class = object.word(1);
        let place = KnownClass::place(class);
        if let Some(known) = self.classes.get(place).filter(|known| known.class == class) {
            self.text.padded::<{ Known::LONGEST }, 32>(&known.text);
        } else {
            let start = self.text.written().len();
            self.class_of(class);
            let text = self.text.written().get(start..).and_then(Padded::of);
            if let (Some(known), Some(text)) = (self.classes.get_mut(place), text) {
                *known = KnownClass { class, text };
            }
        }
        self.text.long_address(object.address);
        self.text.bytes(b">");
    }

    /// Such as `#<Foo 0x`.
    fn class_of(&mut self, class: usize) {
        self.text.bytes(b"#<");
        // SAFETY: the class of an object of the heap; a name is the string that it holds, or nil.
        let name = unsafe {
            let class = (self.vm.functions.real_class)(class as rb_sys::VALUE);
            if class == 0 { 0 } else { (self.vm.functions.class_name)(class) as usize }
        };
        if name > 8 && name & 7 == 0 {
            // SAFETY: a string of the heap.
            self.cut(unsafe { Object::read(name) }.string());
        } else {
            self.text.bytes(b"Object");
        }
        self.text.bytes(b" 0x");
    }

    /// The names, if there are any.
    pub(super) fn write(&mut self, out: &mut Output<'_>) {
        if self.named == 0 {
            return;
        }
        for (index, span) in self.spans.iter().take(self.used).enumerate() {
            out.bytes(if index == 0 { b", \"edges\":[" } else { b", " });
            let start = span.start as usize;
            match span.length as usize {
                0 => out.bytes(b"\"(internal)\""),
                length => out.cut_of(&self.text, start, length),
            }
        }
        out.bytes(b"]");
    }
}
