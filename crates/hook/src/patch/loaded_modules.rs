//! Records what is loaded while the loader's list is locked, to be read after that.

use core::ops::ControlFlow;

use super::book::List;
use super::modules::{path_of, walk};

/// One module.
#[derive(Clone, Copy, Debug)]
struct Entry {
    build: u64,
    base: u64,
    path_end: usize,
}

/// All modules at one moment.
#[derive(Debug)]
pub(crate) struct LoadedModules {
    entries: List<Entry>,
    paths: List<u8>,
}

impl LoadedModules {
    /// Reads as many modules as there is memory for.
    pub(crate) fn now() -> Self {
        let mut modules = Self { entries: List::new(), paths: List::new() };
        walk(|loaded| {
            if !modules.paths.extend(path_of(loaded.name)) {
                return ControlFlow::Break(());
            }
            let entry = Entry { build: loaded.build(), base: loaded.base, path_end: modules.paths.len() };
            if modules.entries.push(entry) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        modules
    }

    /// Visits the path, build and load address of each.
    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8], u64, u64)) {
        let mut begin = 0;
        for entry in self.entries.as_slice() {
            let path = self.paths.as_slice().get(begin..entry.path_end).unwrap_or_default();
            visit(path, entry.build, entry.base);
            begin = entry.path_end;
        }
    }
}
