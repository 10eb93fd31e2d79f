//! Instance variables of plain objects. Objects of one class (since 3.2: of one shape) have the same variables in the same
//! places of their memory, so Ruby is asked for the names of one of them, and the others are read as they are. Wherever an
//! object is not like the one that is known, Ruby is asked.

use std::ffi::c_int;

use rb_sys::{ID, VALUE};

use super::edges::{Tellers, is_address};
use super::names::Told;
use super::text::Padded;
use super::writer::{Writer, out_reference};
use crate::atlas::Object;
use crate::copy::own_memory::slice;

/// Ruby is asked for objects with more.
const MOST: usize = 16;
const CONTINUE: c_int = 0;
const STOP: c_int = 1;

/// Where the variables of an object are.
#[derive(Clone, Copy)]
struct Place {
    /// Its class, or what tells its shape. Never 0.
    class: usize,
    start: usize,
    /// How many there are; `None` if the shape tells.
    count: Option<usize>,
    /// Most that may be there.
    room: usize,
}

impl Place {
    #[inline(always)]
    fn of(object: Object, slot_size: usize) -> Option<Self> {
        let (class, start, count, room) = object.place_of_variables(slot_size)?;
        let is_readable = start != 0 && count.is_none_or(|count| count <= MOST);
        is_readable.then_some(Self { class, start, count, room: room.min(MOST) })
    }

    /// So many of them, or fewer.
    #[inline(always)]
    fn values(self, known: usize) -> &'static [usize] {
        let count = self.count.unwrap_or(known).min(self.room);
        // SAFETY: the memory of an object of the heap, in which nothing changes.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.start), count) }
    }
}

/// What is known of one class or shape.
#[derive(Clone, Copy)]
struct Known {
    /// 0 for none.
    class: usize,
    /// Names in the order of their places; 0 for one that no object which was asked for had.
    names: [usize; MOST],
    /// A bit for each that is not 0.
    named: usize,
    /// Places that have been looked at.
    count: usize,
    /// The names of the references of an object in which these variables are references, as they stand in a line.
    references: usize,
    text: Padded<{ Known::LONGEST }>,
}

impl Known {
    const LONGEST: usize = 128;
    const USUAL: usize = 64;
    /// A power of two.
    const COUNT: usize = 64;

    #[inline(always)]
    fn place(class: usize) -> usize {
        (class ^ class >> 3 ^ class >> 9) & (Self::COUNT - 1)
    }

    #[inline(always)]
    fn is_of(&self, place: Place) -> bool {
        self.class == place.class && place.count.is_none_or(|count| count <= self.count)
    }
}

/// What is known of all.
pub(super) struct Variables(&'static mut [Known]);

impl Variables {
    /// `None` without memory.
    pub(super) fn new() -> Option<Self> {
        Some(Self(slice(Known::COUNT)?))
    }
}

/// Names and values of one object, as Ruby tells them.
struct Asked {
    names: [usize; MOST],
    values: [usize; MOST],
    count: usize,
}

impl Asked {
    /// `None` if there are too many.
    fn of(object: Object, tellers: Tellers) -> Option<Self> {
        let mut asked = Self { names: [0; MOST], values: [0; MOST], count: 0 };
        let argument = std::ptr::from_mut(&mut asked).expose_provenance();
        // SAFETY: an object of the heap; the record outlives the call, and no other code uses it meanwhile.
        unsafe { (tellers.each_variable)(object.value(), on_variable, argument) };
        (asked.count <= MOST).then_some(asked)
    }

    /// Names by the places of their values. `None` if these are not what Ruby has told, in this order.
    fn places(&self, values: &[usize]) -> Option<Known> {
        let (names, count) = ([0; MOST], values.len());
        let mut known = Known { class: 0, names, named: 0, count, references: 0, text: Padded::EMPTY };
        let mut told = self.names.iter().zip(&self.values).take(self.count);
        for (number, (place, value)) in known.names.iter_mut().zip(values).enumerate() {
            if *value != UNSET {
                let (name, _) = told.next().filter(|(_, told)| *told == value)?;
                (*place, known.named) = (*name, known.named | 1 << number);
            }
        }
        told.next().is_none().then_some(known)
    }
}

const UNSET: usize = rb_sys::Qundef as usize;

extern "C" fn on_variable(name: ID, value: VALUE, asked: usize) -> c_int {
    // SAFETY: the record of `Asked::of`.
    let asked = unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Asked>(asked) };
    let (Some(place), Some(told)) = (asked.names.get_mut(asked.count), asked.values.get_mut(asked.count))
    else {
        asked.count = MOST + 1;
        return STOP;
    };
    (*place, *told) = (name as usize, value as usize);
    asked.count += 1;
    CONTINUE
}

impl Writer<'_> {
    /// Writes the references of a plain object, and their names. False if Ruby must tell of them: nothing has been written.
    #[inline(always)]
    pub(super) fn variables_of(&mut self, object: Object, slot_size: usize, tellers: Tellers) -> bool {
        let Some(place) = Place::of(object, slot_size) else { return false };
        if self.known_variables(place) && self.write_variables(place) {
            return true;
        }
        self.learn(object, slot_size, tellers) && self.write_variables(place)
    }

    #[inline(always)]
    fn known_variables(&self, place: Place) -> bool {
        self.variables.0.get(Known::place(place.class)).is_some_and(|known| known.is_of(place))
    }

    /// False if the object has a variable whose name is not known: nothing has been written.
    #[inline(always)]
    fn write_variables(&mut self, place: Place) -> bool {
        let Self { variables, names, out, references: count, class, .. } = self;
        let Some(known) = variables.0.get_mut(Known::place(place.class)) else { return false };
        let values = place.values(known.count);
        let (mut references, mut set) = (0, 0);
        for (number, value) in values.iter().enumerate() {
            references |= usize::from(is_address(*value) && *value != *class) << number;
            set |= usize::from(*value != UNSET) << number;
        }
        if set & !known.named != 0 {
            return false;
        }
        if references == 0 {
            return true;
        }
        let kept = known.references == references;
        let mut left = references;
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let (Some(value), Some(name)) = (values.get(number), known.names.get(number)) else { break };
            if !kept {
                names.tell(*count, Told::Variable(*name));
            }
            out_reference(out, count, *value);
        }
        if kept {
            out.padded::<{ Known::LONGEST }, { Known::USUAL }>(&known.text);
            return true;
        }
        let start = out.written().len();
        out.bytes(b"]");
        names.write_told(out, *count);
        // Unless the buffer was full meanwhile, and began anew.
        if let Some(text) =
            out.written().get(start..).filter(|text| text.starts_with(b"]")).and_then(Padded::of)
        {
            (known.references, known.text) = (references, text);
        }
        true
    }

    /// Asks for the variables of this object. False if its memory does not have them as Ruby says.
    #[inline(never)]
    fn learn(&mut self, object: Object, slot_size: usize, tellers: Tellers) -> bool {
        // Found once more: passed on, it would be kept in memory, from where the usual way would read it.
        let Some(place) = Place::of(object, slot_size) else { return false };
        let count = place.count.unwrap_or_else(|| object.variables() as usize);
        if self.vm.is_too_complex(object) || count > place.room {
            return false;
        }
        let known = Asked::of(object, tellers).and_then(|asked| asked.places(place.values(count)));
        let (Some(mut known), Some(before)) = (known, self.variables.0.get_mut(Known::place(place.class)))
        else {
            return false;
        };
        known.class = place.class;
        if before.class == place.class {
            // Another object may have told what this one does not have.
            for (number, (name, before)) in known.names.iter_mut().zip(before.names).enumerate() {
                if *name == 0 && before != 0 {
                    (*name, known.named) = (before, known.named | 1 << number);
                }
            }
            known.count = known.count.max(before.count);
        }
        *before = known;
        true
    }
}
