//! Values of strings by their hashes: 24 bytes for each, and the places of a table, 6 to 12 bytes.

use crate::grow::push;
use crate::intern::Map;
use crate::tally::Count;

/// Values whose text is kept by default: those that waste most.
const MOST_TEXTS: usize = 1 << 14;
const NONE: u32 = u32::MAX;

/// One value. Numbers that do not fit are in [`Values::large`].
#[derive(Clone, Copy, Debug)]
struct Same {
    hash: [u32; 2],
    objects: u32,
    bytes: u32,
    bytesize: u32,
    line: u32,
}

/// All values.
#[derive(Debug, Default)]
pub(crate) struct Values {
    list: Vec<Same>,
    /// Numbers of the list, each near the place that its hash gives it; [`NONE`] for no number.
    table: Vec<u32>,
    /// Bytes of all strings with the value, and of the value, where one of them does not fit.
    large: Map<u32, (u64, u64)>,
    texts: Map<u32, Box<str>>,
    /// Values that waste less have no text.
    least: u64,
    most_texts: usize,
}

impl Values {
    /// `shown`: the number of values to show.
    pub(crate) fn new(shown: usize) -> Values {
        Values { most_texts: shown.max(MOST_TEXTS), ..Values::default() }
    }

    /// Adds strings with a value, and returns its number. `line`: of the first of them.
    pub(crate) fn add(&mut self, hash: u64, count: Count, bytesize: u64, line: u32) -> u32 {
        if self.list.len() * 3 >= self.table.len() * 2 {
            self.grow();
        }
        let at = match self.find(hash) {
            Ok(at) => at,
            Err(place) => {
                let at = self.list.len() as u32;
                self.table[place] = at;
                let hash = [hash as u32, (hash >> 32) as u32];
                push(&mut self.list, Same { hash, objects: 0, bytes: 0, bytesize: 0, line });
                self.set(at, 0, bytesize);
                at
            }
        };
        let bytes = self.count(at).bytes.saturating_add(count.bytes);
        self.set(at, bytes, self.bytesize(at));
        let same = &mut self.list[at as usize];
        same.objects = same.objects.saturating_add(u32::try_from(count.objects).unwrap_or(u32::MAX));
        at
    }

    fn set(&mut self, at: u32, bytes: u64, bytesize: u64) {
        let same = &mut self.list[at as usize];
        same.bytes = u32::try_from(bytes).unwrap_or(NONE);
        same.bytesize = u32::try_from(bytesize).unwrap_or(NONE);
        if same.bytes == NONE || same.bytesize == NONE {
            self.large.insert(at, (bytes, bytesize));
        }
    }

    /// The number of the value, or the place for it.
    fn find(&self, hash: u64) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            match self.table[place] {
                NONE => return Err(place),
                at if self.hash(at) == hash => return Ok(at),
                _ => place = (place + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let places = (self.table.len() * 2).max(64);
        // Both together would be the peak of memory.
        self.table = Vec::new();
        self.table = vec![NONE; places];
        for at in 0..self.list.len() as u32 {
            let mut place = self.hash(at) as usize & (places - 1);
            while self.table[place] != NONE {
                place = (place + 1) & (places - 1);
            }
            self.table[place] = at;
        }
    }

    /// Merges another one, which gives its memory back meanwhile. `line` maps its lines' numbers to those
    /// here.
    pub(crate) fn take(&mut self, mut other: Values, mut line: impl FnMut(u32) -> u32) {
        other.table = Vec::new();
        while let Some(at) = (other.list.len() as u32).checked_sub(1) {
            let (count, bytesize, hash) = (other.count(at), other.bytesize(at), other.hash(at));
            let here = self.add(hash, count, bytesize, line(other.list[at as usize].line));
            if let Some(text) = other.texts.remove(&at)
                && self.wants_text(here)
            {
                self.tell(here, text);
            }
            other.list.truncate(at as usize);
            if other.list.capacity() / 16 * 15 > other.list.len() {
                other.list.shrink_to_fit();
            }
        }
    }

    /// Whether a value wastes so much that its text may be asked for.
    pub(crate) fn wants_text(&self, at: u32) -> bool {
        let same = &self.list[at as usize];
        same.objects > 1 && self.spare_bytes(at) >= self.least && !self.texts.contains_key(&at)
    }

    /// Notes the text of a value. A value that wastes most at the end also wanted its text when its last
    /// string was added.
    pub(crate) fn tell(&mut self, at: u32, text: Box<str>) {
        self.texts.insert(at, text);
        if self.texts.len() < 2 * self.most_texts {
            return;
        }
        let mut spare: Vec<u64> = self.texts.keys().map(|at| self.spare_bytes(*at)).collect();
        let (_, least, _) =
            spare.select_nth_unstable_by_key(self.most_texts, |bytes| std::cmp::Reverse(*bytes));
        self.least = *least + 1;
        let mut texts = std::mem::take(&mut self.texts);
        texts.retain(|at, _| self.spare_bytes(*at) >= self.least);
        self.texts = texts;
    }

    /// Numbers of the values that several strings have.
    pub(crate) fn copied(&self) -> Vec<u32> {
        (0..self.list.len() as u32).filter(|at| self.list[*at as usize].objects > 1).collect()
    }

    /// The hash of a value.
    pub(crate) fn hash(&self, at: u32) -> u64 {
        let [low, high] = self.list[at as usize].hash;
        u64::from(high) << 32 | u64::from(low)
    }

    /// Its strings, and their bytes.
    pub(crate) fn count(&self, at: u32) -> Count {
        let same = &self.list[at as usize];
        let large = self.large.get(&at).filter(|_| same.bytes == NONE || same.bytesize == NONE);
        Count { objects: u64::from(same.objects), bytes: large.map_or(u64::from(same.bytes), |both| both.0) }
    }

    /// Bytes of the value.
    pub(crate) fn bytesize(&self, at: u32) -> u64 {
        let same = &self.list[at as usize];
        let large = self.large.get(&at).filter(|_| same.bytes == NONE || same.bytesize == NONE);
        large.map_or(u64::from(same.bytesize), |both| both.1)
    }

    /// All but one of its strings could go.
    pub(crate) fn spare_bytes(&self, at: u32) -> u64 {
        let count = self.count(at);
        count.bytes - count.bytes / count.objects.max(1)
    }

    /// The number of the line of its first string.
    pub(crate) fn line(&self, at: u32) -> u32 {
        self.list[at as usize].line
    }

    /// The beginning of its text, if that is known and it wastes much.
    pub(crate) fn text(&self, at: u32) -> Option<&str> {
        self.texts.get(&at).map(|text| &**text)
    }

    /// Its approximate bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Same>() + self.table.len() * 4 + self.texts.len() * 120
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Two that are merged agree with a plain map, and have texts for the values that waste most.
        #[test]
        fn values_are_counted(
            strings in proptest::collection::vec((0_u64..60, prop_oneof![40_u64..90, Just(u64::from(u32::MAX)), Just(1_u64 << 40)]), 0..400),
            half in 0_usize..400
        ) {
            let mut truth: HashMap<u64, (u64, u64)> = HashMap::new();
            let mut both = [Values::new(3), Values::new(3)];
            both.iter_mut().for_each(|values| values.most_texts = 3);
            for (number, (value, bytes)) in strings.iter().enumerate() {
                let values = &mut both[usize::from(number >= half)];
                let at = values.add(value.wrapping_mul(0x9e37_79b9_7f4a_7c15), Count { objects: 1, bytes: *bytes }, value << 33, 7);
                if values.wants_text(at) {
                    values.tell(at, value.to_string().into());
                }
                let mine = truth.entry(*value).or_default();
                *mine = (mine.0 + 1, mine.1 + bytes);
            }
            let [mut values, other] = both;
            values.take(other, |line| line + 1);
            prop_assert_eq!(values.list.len(), truth.len());
            for (value, (objects, bytes)) in &truth {
                let at = values.find(value.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
                prop_assert_eq!(values.count(at), Count { objects: *objects, bytes: *bytes });
                prop_assert_eq!(values.bytesize(at), value << 33);
                prop_assert!(matches!(values.line(at), 7 | 8));
                prop_assert!(values.text(at).is_none_or(|text| text == value.to_string()));
            }
            prop_assert!(values.texts.len() < 6);
            prop_assert_eq!(values.copied().len(), truth.values().filter(|(objects, _)| *objects > 1).count());
        }

        #[test]
        fn those_that_waste_most_have_texts(strings in proptest::collection::vec((0_u64..60, 40_u64..90), 0..400)) {
            let mut values = Values::new(3);
            values.most_texts = 3;
            for (value, bytes) in strings {
                let at = values.add(value << 5, Count { objects: 1, bytes }, 5, 0);
                if values.wants_text(at) {
                    values.tell(at, value.to_string().into());
                }
            }
            let mut copied = values.copied();
            copied.sort_by_key(|at| std::cmp::Reverse(values.spare_bytes(*at)));
            // Among values that waste the same, only some may have one.
            let last = copied.get(2).map_or(0, |at| values.spare_bytes(*at));
            for at in copied.iter().filter(|at| values.spare_bytes(**at) > last) {
                prop_assert!(values.text(*at).is_some());
            }
        }
    }
}
