//! Finds the function that a symbol names. This is done for each relocation of each module, and the answer is nearly
//! always "none": two table lookups find that out.

use crate::functions::FUNCTIONS;

/// Sets of functions, one bit each, by the length of the name and by its last byte.
#[derive(Debug)]
pub(super) struct Names {
    by_len: [u64; 64],
    by_last: [u64; 256],
}

impl Names {
    /// Knows the functions of this set.
    pub(super) fn new(wanted: u64) -> Self {
        let mut names = Self { by_len: [0; 64], by_last: [0; 256] };
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let name = function.name.to_bytes();
            let bit = wanted & 1_u64.wrapping_shl(index as u32);
            let (len, last) = (names.by_len.get_mut(name.len()), name.last());
            if let (Some(of_len), Some(last)) = (len, last) {
                *of_len |= bit;
                if let Some(of_last) = names.by_last.get_mut(usize::from(*last)) {
                    *of_last |= bit;
                }
            }
        }
        names
    }

    /// The index of the function with this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<u8> {
        let of_last = self.by_last.get(usize::from(*name.last()?))?;
        let mut left = self.by_len.get(name.len())? & of_last;
        while left != 0 {
            let index = left.trailing_zeros();
            if FUNCTIONS.get(index as usize)?.name.to_bytes() == name {
                return u8::try_from(index).ok();
            }
            left &= left.wrapping_sub(1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow, obvious twin.
    fn slowly(name: &[u8]) -> Option<usize> {
        FUNCTIONS.iter().position(|function| function.name.to_bytes() == name)
    }

    #[test]
    fn names_are_found_as_by_comparing_all() {
        let names = Names::new(u64::MAX);
        for function in FUNCTIONS {
            let name = function.name.to_bytes();
            let longer = [name, b"x"].concat();
            let mut other = name.to_vec();
            other[0] ^= 1;
            for name in [name, &name[1..], &name[..name.len() - 1], &longer, &other] {
                assert_eq!(names.find(name).map(usize::from), slowly(name), "{name:?}");
            }
        }
        assert_eq!(names.find(b""), None);
        assert_eq!(names.find(&[b'c'; 300]), None);
    }

    #[test]
    fn only_wanted_functions_are_found() {
        let index = FUNCTIONS.iter().position(|function| function.name == c"free").unwrap();
        let names = Names::new(1 << index);
        assert_eq!(names.find(b"free").map(usize::from), Some(index));
        assert_eq!(names.find(b"malloc"), None);
    }
}
