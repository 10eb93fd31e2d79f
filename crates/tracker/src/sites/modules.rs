//! The modules of native sites. A module is identified by its path and its build, never by its address, where another
//! module may be loaded later.

use super::{Inner, hash_bytes, mix, slice};

/// The place of a return address.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The module's path.
    pub path: &'a [u8],
    /// The build: tells apart different modules that were at this path at different times.
    pub build: u64,
    /// The return address's offset from the module's load address.
    pub offset: u64,
}

/// A module during one walk over what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// See [`Place::build`].
    pub build: u64,
    /// The load address; `None`: it was not loaded.
    pub base: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ModuleEntry {
    pub(super) path: *const u8,
    pub(super) path_len: u32,
    /// The last walk that found it loaded, and its address then.
    pub(super) walk: u32,
    pub(super) base: u64,
    pub(super) build: u64,
}

impl Inner {
    /// The module's number, from 1, and the record of it. A new one is made unless memory is used up.
    pub(super) fn module(&mut self, place: &Place<'_>) -> Option<(u32, ModuleEntry)> {
        let known = self.find_module(place.path, place.build);
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
        if !self.module_list.reserve(&mut self.room) || !self.modules.reserve(&mut self.room) {
            return None;
        }
        let path = self.strings.add(place.path, &mut self.room)?;
        let entry =
            ModuleEntry { path, path_len: place.path.len() as u32, walk: 0, base: 0, build: place.build };
        let index = self.module_list.push(entry, &mut self.room)?;
        self.modules.add(hash(place.path, place.build), index, &mut self.room).then_some(index + 1)
    }
}

fn hash(path: &[u8], build: u64) -> u32 {
    mix(hash_bytes(path) ^ build) as u32
}
