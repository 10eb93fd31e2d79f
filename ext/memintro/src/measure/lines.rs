//! The lines of Ruby that make objects: each gets a number when it makes the first one.

use std::collections::HashMap;
use std::ffi::CStr;

use memintro_abi::{Frame, FrameKind};

use crate::vm;

/// Lines with numbers from 1 on, in the order in which they were met.
#[derive(Default)]
pub(super) struct Lines {
    texts: Vec<(Vec<u8>, u32)>,
    numbers: HashMap<(Vec<u8>, u32), u32>,
    /// By what the VM calls a line during one collection count.
    recent: HashMap<(usize, u32), u32>,
    generation: u32,
}

impl Lines {
    /// The number of the line that runs now; 0 if none does. Under the GVL; makes no object.
    pub(super) fn now(&mut self) -> u32 {
        let mut frame = Frame { key: 0, detail: 0, generation: 0, path: std::ptr::null(), line: 0 };
        // SAFETY: a record of our own, as the hook gives it.
        if unsafe { vm::frame(&raw mut frame) } != FrameKind::RUBY {
            return 0;
        }
        if frame.generation != self.generation {
            self.recent.clear();
            self.generation = frame.generation;
        }
        if let Some(number) = self.recent.get(&(frame.key, frame.detail)) {
            return *number;
        }
        let key = (frame.key, frame.detail);
        // SAFETY: the frame was answered just now.
        unsafe { vm::locate(&raw mut frame) };
        if frame.path.is_null() || frame.line == 0 {
            return 0;
        }
        // SAFETY: a terminated text, which is valid until the next collection.
        let path = unsafe { CStr::from_ptr(frame.path) }.to_bytes();
        let number = self.number(path, frame.line);
        if frame.key != 0 {
            self.recent.insert(key, number);
        }
        number
    }

    fn number(&mut self, path: &[u8], line: u32) -> u32 {
        let text = (path.to_vec(), line);
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        self.texts.push(text.clone());
        let number = u32::try_from(self.texts.len()).unwrap_or(0);
        self.numbers.insert(text, number);
        number
    }

    /// Path and line of a number; an empty path where there is none.
    pub(super) fn text(&self, number: u32) -> (Vec<u8>, u32) {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.texts.get(at)).cloned().unwrap_or_default()
    }
}
