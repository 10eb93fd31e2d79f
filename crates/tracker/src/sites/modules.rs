//! The modules that native sites lie in. One is known by its path and by what it was built from, never by where it is:
//! another time it is elsewhere, and something else is there.

use super::{Inner, hash_bytes, mix, slice};

/// Where a return address lies.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The module's path.
    pub path: &'a [u8],
    /// Tells apart what was at this path at different times.
    pub build: u64,
    /// The return address's offset from where the module was loaded.
    pub offset: u64,
}

/// A module at one walk over what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// See [`Place::build`].
    pub build: u64,
    /// Where it was loaded; `None`: it was not.
    pub base: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ModuleEntry {
    pub(super) path: *const u8,
    pub(super) path_len: u32,
    /// At which walk it was loaded for the last time, and where.
    pub(super) walk: u32,
    pub(super) base: u64,
    pub(super) build: u64,
}

impl Inner {
    /// The module's number, from 1, and what is kept of it. A new one is made unless memory is used up.
    pub(super) fn module(&mut self, place: &Place<'_>, full: bool) -> Option<(u32, ModuleEntry)> {
        let known = self.find_module(place.path, place.build);
        if known.is_none() && full {
            return None;
        }
        let number = known.or_else(|| self.add_module(place))?;
        Some((number, self.module_list.get(number - 1)?))
    }

    pub(super) fn find_module(&self, path: &[u8], build: u64) -> Option<u32> {
        let list = &self.module_list;
        let found = self.modules.find(hash(path, build), |index| {
            list.get(index).is_some_and(|entry| {
                // SAFETY: the entry's path was copied into the string arena with this length.
                entry.build == build && unsafe { slice(entry.path, entry.path_len) } == path
            })
        });
        found.map(|index| index + 1)
    }

    fn add_module(&mut self, place: &Place<'_>) -> Option<u32> {
        let path = self.strings.add(place.path, &mut self.bytes)?;
        let entry =
            ModuleEntry { path, path_len: place.path.len() as u32, walk: 0, base: 0, build: place.build };
        let index = self.module_list.push(entry, &mut self.bytes)?;
        self.modules.add(hash(place.path, place.build), index, &mut self.bytes).then_some(index + 1)
    }
}

fn hash(path: &[u8], build: u64) -> u32 {
    mix(hash_bytes(path) ^ build) as u32
}
