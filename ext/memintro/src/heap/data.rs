//! Objects of extensions (`T_DATA`) whose data are not freed: their type has no free function, and they point to something.
//!
//! | word | typed | untyped |
//! |---|---|---|
//! | 2 | type | function that marks |
//! | 3 | 1; with bit 1, since 3.3, the data is in the slot | function that frees, or 0 |
//! | 4 | data | data |
//!
//! Known from `rtypeddata.h` and `rdata.h` of 3.1, 3.3 and 3.4.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::slot::Slot;
use super::walk::{self, Trouble};

/// The type of an object of an extension.
const T_DATA: usize = 0x0c;
/// Bits of a typed object's flag: it is typed, and its data is in its slot.
const IS_TYPED: usize = 1;
const IS_EMBEDDED: usize = 2;

/// What an object points to, and the name of its type.
#[derive(Clone, Copy)]
pub(crate) struct Unfreed {
    pub(crate) data: usize,
    /// The terminated name, which the extension never unloads; 0: the object has no type.
    name: usize,
}

impl Unfreed {
    /// Of an object, or of one that is about to be freed.
    ///
    /// # Safety
    /// There is an object in the slot.
    pub(crate) unsafe fn of(object: VALUE) -> Option<Self> {
        // SAFETY: the caller's promise.
        let kind = unsafe { Slot::read(object as usize) }.kind();
        if kind != T_DATA {
            return None;
        }
        // SAFETY: an object of this type has so many words.
        let [_, _, second, third, data] = unsafe { *(object as *const [usize; 5]) };
        if data == 0 {
            return None;
        }
        if third & !IS_EMBEDDED != IS_TYPED {
            // Without a type, the words are its functions: one that marks, and one that frees.
            return (third == 0).then_some(Self { data, name: 0 });
        }
        if third & IS_EMBEDDED != 0 {
            return None;
        }
        // SAFETY: a typed object's type outlives it.
        let of = unsafe { (second as *const rb_sys::rb_data_type_t).as_ref()? };
        of.function.dfree.is_none().then_some(Self { data, name: of.wrap_struct_name as usize })
    }

    /// The name of the type.
    pub(crate) fn name(&self) -> Option<String> {
        if self.name == 0 {
            return None;
        }
        // SAFETY: the type's terminated name, in a library that Ruby never unloads.
        let name = unsafe { CStr::from_ptr(self.name as *const _) };
        Some(name.to_string_lossy().into_owned())
    }
}

/// Those of all live objects.
pub(crate) fn unfreed() -> Result<Vec<Unfreed>, Trouble> {
    let mut found = Vec::new();
    walk::each_page(|_, page| {
        // SAFETY: a slot of a page, while Ruby walks over it.
        found.extend(
            page.slots()
                .filter(|slot| slot.is_object())
                .filter_map(|slot| unsafe { Unfreed::of(slot.value) }),
        );
    })?;
    Ok(found)
}
