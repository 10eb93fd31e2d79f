//! `Memintro::Native.patches` and `allocator`: what the hook has taken over, and whose allocator is behind it.

use std::ffi::{CStr, c_void};

use magnus::{Error, RArray, RModule, RString, Ruby, function, prelude::*};
use memintro_abi::{PatchEntry, SlotState, Status};

use super::{errors, names};
use crate::hook_link;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("patches", function!(patches, 0))?;
    native.define_singleton_method("allocator", function!(allocator, 0))
}

struct Patch {
    module: Vec<u8>,
    symbol: Option<Vec<u8>>,
    slot: u64,
    value: u64,
    state: SlotState,
}

fn patches(ruby: &Ruby) -> Result<RArray, Error> {
    errors::need_room(ruby)?;
    unsafe extern "C" fn push(context: *mut c_void, entry: *const PatchEntry) {
        // SAFETY: the context is the vector below; the entry and its texts are valid during the visit.
        unsafe {
            let entry = &*entry;
            let text = |text: *const std::ffi::c_char| {
                (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes().to_vec())
            };
            (*context.cast::<Vec<Patch>>()).push(Patch {
                module: text(entry.module).unwrap_or_default(),
                symbol: text(entry.symbol),
                slot: entry.slot,
                value: entry.value,
                state: entry.state,
            });
        }
    }
    let array = ruby.ary_new();
    let Some(api) = hook_link::found() else { return Ok(array) };
    let mut found: Vec<Patch> = Vec::new();
    // SAFETY: the callback fits the record, the context outlives the visit.
    unsafe { (api.patches)((&raw mut found).cast(), push) };
    for patch in found {
        let state = match patch.state {
            SlotState::PATCHED => "patched",
            SlotState::FOREIGN => "foreign",
            SlotState::LOST => "lost",
            SlotState::MALFORMED => "malformed",
            _ => "refused",
        };
        let row = ruby.ary_new_capa(5);
        row.push(names::string(ruby, &patch.module))?;
        row.push(patch.symbol.map(|symbol| names::string(ruby, &symbol)))?;
        row.push(patch.slot)?;
        row.push(patch.value)?;
        row.push(ruby.to_symbol(state))?;
        array.push(row)?;
    }
    Ok(array)
}

fn allocator(ruby: &Ruby) -> Option<RString> {
    let api = hook_link::found()?;
    let mut buffer = [0; 4096];
    // SAFETY: the buffer has the length that is given.
    let status = unsafe { (api.allocator)(buffer.as_mut_ptr(), buffer.len()) };
    if status != Status::OK {
        return None;
    }
    // SAFETY: the hook has terminated the text.
    Some(names::string(ruby, unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_bytes()))
}
