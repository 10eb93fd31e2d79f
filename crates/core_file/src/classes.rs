//! Names of Ruby's classes. Each class has its name as a string: since Ruby 3.2 in its slot, before that in its table of
//! variables, by a key of which the program knows nothing. All classes have it at the same place, and most have one: so the place
//! is where most classes have a string that may be a name.

use std::collections::HashMap;

use memintro_analysis::leaks::unused::Read;

use crate::image::Image;
use crate::ruby::{Heap, SLOT};

const CLASS: u64 = 0x02;
const STRING: u64 = 0x05;
/// A string whose text is not in its slot.
const ELSEWHERE: u64 = 1 << 13;
/// Where the length of a text in a slot is among the flags, in Ruby 3.1.
const LENGTH: (u32, u64) = (14, 0x1f);
/// Where what a class inherits from is in its slot.
const SUPER: usize = 16;
/// Variables of a class that are looked at.
const MOST_VARIABLES: usize = 256;
const LONGEST_NAME: usize = 512;
/// Classes that are looked at for a name, from one to what it inherits from.
const FARTHEST: usize = 64;

/// Where classes have their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// At this distance in the slot.
    Slot(usize),
    /// By this key in the table of variables.
    Variable(u64),
}

/// Names of classes.
#[derive(Debug)]
pub struct Classes<'a> {
    image: &'a Image<'a>,
    heap: &'a Heap,
    /// Since Ruby 3.2 slots have several sizes, and a string has its length before its text.
    has_sizes: bool,
    place: Option<Place>,
}

impl<'a> Classes<'a> {
    /// Asks all classes where names are.
    #[must_use]
    pub fn find(image: &'a Image<'a>, heap: &'a Heap) -> Self {
        let has_sizes = heap.pages.iter().any(|page| page.stride > SLOT);
        let mut found = Self { image, heap, has_sizes, place: None };
        let mut counts: HashMap<Place, usize> = HashMap::new();
        for page in &heap.pages {
            for (slot, _) in page.slots(image).filter(|(_, kind)| u64::from(*kind) == CLASS) {
                found.each_text(slot, page.stride, |place, _| *counts.entry(place).or_default() += 1);
            }
        }
        found.place =
            counts.into_iter().max_by_key(|(place, count)| (*count, *place)).map(|(place, _)| place);
        found
    }

    /// Whether classes have names.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.place.is_some()
    }

    /// The name of this class, and whether it is its own: a class without one has that of what it inherits from.
    #[must_use]
    pub fn name_of(&self, class: usize) -> Option<(String, bool)> {
        let mut at = class;
        for _ in 0..FARTHEST {
            let stride = self.heap.page_of(at)?.stride;
            let mut name = None;
            let is_class = self.image.word(at)? & 0x1f == CLASS;
            self.each_text(at, stride, |place, text| {
                name = name.take().or((is_class && self.place == Some(place)).then_some(text));
            });
            match name {
                Some(name) => return Some((name, at == class)),
                None => at = self.image.pointer(at + SUPER)?,
            }
        }
        None
    }

    /// The class of the object to which this memory belongs: its slot, or what it has in short-lived memory, before which its
    /// own address is.
    #[must_use]
    pub fn class_at(&self, memory: usize) -> Option<usize> {
        let slot = match self.heap.page_of(memory) {
            Some(_) => memory,
            None => self.image.pointer(memory.checked_sub(8)?)?,
        };
        self.heap.page_of(slot)?;
        self.image.pointer(slot.checked_add(8)?).filter(|class| self.heap.page_of(*class).is_some())
    }

    /// Strings of a class that may be names.
    fn each_text(&self, slot: usize, stride: usize, mut visit: impl FnMut(Place, String)) {
        if stride > SLOT {
            for distance in (SUPER + 8..stride).step_by(8) {
                if let Some(name) = self.image.pointer(slot + distance).and_then(|value| self.name(value)) {
                    visit(Place::Slot(distance), name);
                }
            }
            return;
        }
        let pointer = |at: usize| self.image.pointer(at).filter(|at| *at > 0 && *at < usize::MAX / 2);
        let Some(table) = pointer(slot + 24).and_then(|parts| pointer(parts + 8)) else { return };
        let (Some(bound), Some(entries)) = (pointer(table + 40), pointer(table + 48)) else { return };
        for entry in (entries..).step_by(24).take(bound.min(MOST_VARIABLES)) {
            let (key, value) = (self.image.word(entry + 8), self.image.pointer(entry + 16));
            if let (Some(key), Some(name)) = (key, value.and_then(|value| self.name(value))) {
                visit(Place::Variable(key), name);
            }
        }
    }

    /// The text of a string, if it may be the name of a constant.
    fn name(&self, string: usize) -> Option<String> {
        let page = self.heap.page_of(string)?;
        let flags = self.image.word(string).filter(|flags| flags & 0x1f == STRING)?;
        let has_length = flags & ELSEWHERE != 0 || self.has_sizes;
        let length = if has_length {
            self.image.pointer(string + 16)?
        } else {
            (flags >> LENGTH.0 & LENGTH.1) as usize
        };
        let start = match (flags & ELSEWHERE != 0, has_length) {
            (true, _) => self.image.pointer(string + 24)?,
            (false, true) => string + 24,
            (false, false) => string + 16,
        };
        let fits = flags & ELSEWHERE != 0 || start + length.min(LONGEST_NAME) <= string + page.stride;
        if !fits || !(1..=LONGEST_NAME).contains(&length) {
            return None;
        }
        let segment = self.image.segment(start)?;
        let text = segment.bytes.get(start - segment.start..)?.get(..length)?;
        let text = std::str::from_utf8(text).ok()?;
        text.split("::").all(is_constant).then(|| text.to_owned())
    }
}

fn is_constant(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
        && name.chars().all(|letter| letter == '_' || letter.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::is_constant;

    #[test]
    fn names_are_those_of_constants() {
        let is_name = |text: &str| text.split("::").all(is_constant);
        let names = ["A", "Net::HTTP", "Überschrift", "A_1"].map(is_name);
        let others = ["", "a", "A::", "A::b", "A b", "#<Class:0x1>", "A:B", "1A"].map(is_name);
        assert_eq!((names, others), ([true; 4], [false; 8]));
    }
}
