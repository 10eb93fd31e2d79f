//! Tells the hook where objects have their contents, so that it puts blocks that the collector has asked for down to the lines of
//! these objects.
//!
//! Up to 3.2, arrays, hashes, structs and objects have their contents in Ruby's transient heap as long as they are young. What
//! outlives a collection is moved into malloc soon after ([`crate::vm`] tells the hook that this is the collector's). A word of
//! the object points to it then, one of the first three behind flags and class. The hook knows which of these are blocks of the
//! collector's; no other value of an object is the address of a block.

use std::ffi::c_void;

use memintro_abi::{HookApi, MOST_PLACES_OF_CONTENTS};

use crate::atlas::types::{T_ARRAY, T_HASH, T_OBJECT, T_STRUCT};
use crate::atlas::{Object, RUBY};
use crate::hook_link;
use crate::objects::{self, Memory};

/// Types whose contents may be in the transient heap: objects, arrays, hashes, structs.
pub(crate) const TRANSIENT: [usize; 4] = [T_OBJECT, T_ARRAY, T_HASH, T_STRUCT];
/// Of a struct: how many members are in its slot.
const EMBEDDED_OF_STRUCT: usize = Object::EMBEDDED | Object::EMBEDDED << 1;
/// Flags and class.
const HEAD_WORDS: usize = 2;
/// A block is never below this.
const LEAST_ADDRESS: usize = 4096;

/// The hook, for a reading: all contents that are known have been put down to their lines. Under the GVL, outside of a collection.
pub(crate) fn settled() -> Option<&'static HookApi> {
    let api = hook_link::found()?;
    settle(api);
    Some(api)
}

/// See [`settled`]. If the hook is busy, they stay as they are until the next time.
pub(crate) fn settle(api: &HookApi) {
    if RUBY.has_transient_heap && objects::is_on() && !objects::is_sampled() {
        let mut memory = Memory::default();
        // SAFETY: the callback fits the context, which outlives the call.
        unsafe { (api.contents_to_lines)((&raw mut memory).cast(), contents) };
    }
}

unsafe extern "C" fn contents(
    context: *mut c_void,
    slot: usize,
    places: *mut [usize; MOST_PLACES_OF_CONTENTS],
) -> bool {
    // SAFETY: the context of `settle`, and the caller's place.
    let (memory, places) = unsafe { (&mut *context.cast::<Memory>(), &mut *places) };
    if memory.is_gone(slot) {
        return false;
    }
    let words = slot as *const usize;
    // SAFETY: a slot that is mapped, and has five words at least; objects do not change under the GVL.
    let object = unsafe { Object::read(slot) };
    let is_embedded = match object.kind() {
        T_ARRAY => object.flags & (Object::EMBEDDED | Object::SHARED) != 0,
        T_OBJECT => object.embeds_variables(),
        T_STRUCT => object.flags & EMBEDDED_OF_STRUCT != 0,
        T_HASH => false,
        _ => true,
    };
    if is_embedded {
        return false;
    }
    let after = words.wrapping_add(HEAD_WORDS).cast::<[usize; MOST_PLACES_OF_CONTENTS]>();
    // SAFETY: as above.
    let after = unsafe { after.read() };
    *places = after.map(|word| if word >= LEAST_ADDRESS && word.is_multiple_of(8) { word } else { 0 });
    *places != [0; MOST_PLACES_OF_CONTENTS]
}
