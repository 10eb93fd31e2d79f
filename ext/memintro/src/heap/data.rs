//! Objects of extensions (`T_DATA`) whose data are not freed: their type has no free function, and they point to something.

use std::ffi::CStr;

use rb_sys::VALUE;

use super::walk::{self, Trouble};
use crate::atlas::types::T_DATA;
use crate::atlas::{DataType, IS_KNOWN, Object};

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
        let object = unsafe { Object::read(object as usize) };
        if !IS_KNOWN {
            return None;
        }
        let data = object.structure();
        if object.kind() != T_DATA || data == 0 || object.embeds_structure() {
            return None;
        }
        match object.data_type() {
            DataType::Untyped { free, .. } => (free == 0).then_some(Self { data, name: 0 }),
            DataType::Typed(of) => {
                // SAFETY: a typed object's type outlives it.
                let of = unsafe { (of as *const rb_sys::rb_data_type_t).as_ref()? };
                of.function.dfree.is_none().then_some(Self { data, name: of.wrap_struct_name as usize })
            }
        }
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
    if !IS_KNOWN {
        return Err(Trouble::UnknownObjects);
    }
    let mut found = Vec::new();
    walk::each_page(|_, page| {
        // SAFETY: a slot of a page, while Ruby walks over it.
        found.extend(
            page.slots()
                .filter(|slot| slot.is_object())
                .filter_map(|slot| unsafe { Unfreed::of(slot.value()) }),
        );
    })?;
    Ok(found)
}
