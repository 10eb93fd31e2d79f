//! The line of an object: the fields of `ObjectSpace.dump_all`, in its order, and after them memintro's own.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;

use rb_sys::{ID, VALUE};

use super::births::Births;
use super::direct::has_references;
use super::edges;
use super::flags::Flags;
use super::heads::{Head, Key, type_text};
use super::names::Names;
use super::output::Output;
use super::sizes::Sizes;
use super::state::Progress;
use super::strings::Strings;
use super::text::Padded;
use super::variables::Variables;
use super::vm::Vm;
use crate::atlas::{self, DataType, Object, RUBY, types};
use crate::copy::own_memory::slice;

const GTE_3_3: bool = RUBY.dump.has_shapes;

pub(super) struct Writer<'a> {
    pub(super) out: Output<'a>,
    pub(super) vm: &'a Vm,
    pub(super) progress: &'a Progress,
    pub(super) strings: Strings<'a>,
    pub(super) names: Names<'a>,
    /// Types of data objects whose functions are not called, because a copy ended in one of them.
    pub(super) skipped: &'a [usize],
    /// Pages of the heap, in order.
    pub(super) pages: &'a [crate::heap::FrozenPage],
    /// Where objects are tracked.
    pub(super) births: Option<Births<'a>>,
    beat: u64,
    /// How many references the line has, and the class, which is none of them.
    pub(super) references: usize,
    pub(super) class: usize,
    /// The category of the line of roots.
    category: *const c_char,
    ours: edges::Ours,
    ours_left: Option<edges::Ours>,
    flags: Flags,
    sizes: Sizes,
    pub(super) variables: Variables,
    heads: &'static mut [Head],
    pub(super) tellers: Option<edges::Tellers>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        out: Output<'a>,
        vm: &'a Vm,
        progress: &'a Progress,
        strings: Strings<'a>,
        names: Names<'a>,
        skipped: &'a [usize],
        pages: &'a [crate::heap::FrozenPage],
    ) -> Option<Self> {
        Some(Self {
            out,
            vm,
            progress,
            strings,
            names,
            skipped,
            pages,
            births: None,
            beat: 0,
            references: 0,
            class: 0,
            category: std::ptr::null(),
            ours: edges::Ours::find(),
            ours_left: None,
            flags: Flags::new(vm, pages)?,
            sizes: Sizes::new()?,
            variables: Variables::new()?,
            heads: slice(Head::COUNT)?,
            tellers: edges::Tellers::find(),
        })
    }

    /// Tells the host that the copy goes on.
    #[inline]
    fn live(&mut self) {
        self.beat += 1;
        self.progress.beat.store(self.beat, Ordering::Relaxed);
    }

    /// One line for each category of roots.
    pub(super) fn roots(&mut self) {
        self.category = std::ptr::null();
        // SAFETY: the writer outlives the call, and no other code uses it meanwhile.
        unsafe { (self.vm.functions.roots)(on_root, std::ptr::from_mut(self).cast()) };
        edges::finalizers::each_untold(&mut |array| {
            // Ruby has not told of it, so it is looked at first.
            if self.is_object(array as usize) {
                self.root(c"finalizers".as_ptr(), array as usize);
            }
        });
        self.end_roots();
        if !edges::finalizers::are_told() {
            self.out.bytes(b"{\"type\":\"ROOT\", \"root\":\"finalizers unknown\", \"references\":[]}\n");
        }
    }

    fn end_roots(&mut self) {
        if self.category.is_null() {
            return;
        }
        // SAFETY: one of Ruby's constants.
        let category = unsafe { CStr::from_ptr(self.category) }.to_bytes();
        self.out.bytes(b"]");
        let names = &mut self.names;
        edges::for_each_root_edge(category, &mut |child, name| names.add(child as usize, name));
        self.names.write(&mut self.out);
        self.out.bytes(b"}\n");
    }

    fn root(&mut self, category: *const c_char, object: usize) {
        // SAFETY: one of Ruby's constants.
        if unsafe { CStr::from_ptr(category) } == c"machine_context" && self.ours.has(object as VALUE) {
            return;
        }
        if category == self.category {
            self.out.bytes(b", ");
        } else {
            self.end_roots();
            self.category = category;
            self.names.clear();
            self.out.bytes(b"{\"type\":\"ROOT\", \"root\":\"");
            // SAFETY: one of Ruby's constants.
            self.out.bytes(unsafe { CStr::from_ptr(category) }.to_bytes());
            self.out.bytes(b"\", \"references\":[");
        }
        self.out.address(object);
        self.names.reference(object);
        self.live();
    }

    /// Writes the line of an object; of a slot without one, nothing. Returns whether there was one. `place`: the numbers
    /// of its page, and of its slot in that.
    pub(super) fn object(&mut self, object: Object, slot_size: usize, place: (usize, usize)) -> bool {
        let kind = object.kind();
        if object.flags == 0 || matches!(kind, 0 | types::T_NODE | types::T_MOVED) {
            return false;
        }
        self.live();
        let is_internal = GTE_3_3 && kind == types::T_IMEMO && !object.is_fields();
        self.class = if is_internal { 0 } else { object.word(1) };
        self.out.address_after(b"{\"address\":", object.address);
        self.head(object, slot_size);
        if kind == types::T_ZOMBIE {
            // Its memory is told by nothing but the slot.
            self.out.number_after(b", \"memsize\":", slot_size as u64);
            self.out.bytes(b"}\n");
            return true;
        }
        let is_data = kind == types::T_DATA;
        // What tells which functions Ruby calls for it.
        let of = match object.data_type() {
            DataType::Typed(of) | DataType::Untyped { mark: of, .. } if is_data => of,
            _ => 0,
        };
        self.fields(object);
        if is_data && self.skipped.contains(&of) {
            self.out.bytes(b", \"unread\":true");
        } else {
            if is_data {
                self.progress.data_type.store(of, Ordering::Relaxed);
            }
            if has_references(object) {
                self.references_of(object, slot_size);
            }
            if matches!(kind, types::T_DATA | types::T_IMEMO) {
                self.place_of(object);
            }
            if let Some(births) = &self.births {
                births.write(place.0, place.1, &mut self.out);
            }
            self.sizes.write(object, slot_size, self.vm, &mut self.out);
            if is_data {
                self.progress.data_type.store(0, Ordering::Relaxed);
            }
        }
        self.flags.write(object, self.vm, &mut self.out);
        true
    }

    /// What objects of one class have in common, and is kept: their type, class, shape and slot.
    #[inline]
    fn head(&mut self, object: Object, slot_size: usize) {
        let key = Key::of(object, self.class, slot_size);
        if let Some(head) = self.heads.get(key.place()).filter(|head| head.key.is(key)) {
            self.out.padded::<{ Head::LONGEST }, { Head::USUAL }>(&head.text);
            return;
        }
        let start = self.out.written().len();
        self.out.bytes(type_text(object.kind()));
        if GTE_3_3 {
            if RUBY.dump.has_shapes_of_internals || object.kind() != types::T_IMEMO || object.is_fields() {
                self.out.number_after(b", \"shape_id\":", object.shape() as u64);
            }
            self.out.number_after(b", \"slot_size\":", slot_size as u64);
        }
        if self.class != 0 {
            self.out.address_after(b", \"class\":", self.class);
        }
        if object.has(Object::FROZEN) {
            self.out.bytes(b", \"frozen\":true");
        }
        // Unless the buffer was full meanwhile, and began anew.
        if let Some(text) = self.out.written().get(start..).filter(|text| !text.is_empty())
            && let (Some(head), Some(text)) = (self.heads.get_mut(key.place()), Padded::of(text))
        {
            *head = Head { key, text };
        }
    }

    fn fields(&mut self, object: Object) {
        match object.kind() {
            types::T_STRING => self.strings.fields(&mut self.out, self.vm, self.progress, object),
            types::T_SYMBOL => {
                // SAFETY: a symbol of the heap has its text.
                let text = unsafe { (self.vm.functions.text_of_symbol)(object.value()) } as usize;
                // SAFETY: an object.
                let text = unsafe { Object::read(text) };
                self.strings.content_of_symbol(&mut self.out, self.vm, self.progress, text);
            }
            types::T_ARRAY => {
                let length = object.array_length();
                self.out.number_after(b", \"length\":", length.cast_unsigned());
                if length > 0 && object.has(Object::SHARED) {
                    self.out.bytes(b", \"shared\":true");
                }
                if (GTE_3_3 || length > 0) && object.has(Object::EMBEDDED) {
                    self.out.bytes(b", \"embedded\":true");
                }
            }
            types::T_HASH => {
                // SAFETY: a Hash of the heap; reads a number.
                let size = unsafe { (self.vm.functions.hash_size)(object.value()) };
                self.out.number_after(b", \"size\":", size as u64);
                if object.has(Object::HAS_DEFAULT_PROC) {
                    self.out.bytes(b", \"default\":");
                    self.out.address(object.default_of_hash());
                }
            }
            types::T_OBJECT => self.variables(object),
            types::T_IMEMO => self.internal(object),
            types::T_CLASS | types::T_MODULE => {
                self.variations(object);
                self.superclass(object);
                if self.class != 0 {
                    self.class_name(object);
                }
            }
            types::T_ICLASS => self.superclass(object),
            types::T_DATA if matches!(object.data_type(), DataType::Typed(_)) => {
                self.out.bytes(b", \"struct\":");
                self.out.text(object.type_name());
            }
            types::T_FLOAT => {
                // SAFETY: a Float of the heap; its number is its third word.
                let value = f64::from_bits(object.word(2) as u64);
                self.out.bytes(b", \"value\":\"");
                super::float::write(&mut self.out, value);
                self.out.bytes(b"\"");
            }
            types::T_FILE if object.word(2) != 0 => {
                // SAFETY: the third word of what a File owns is its descriptor.
                let descriptor =
                    unsafe { std::ptr::with_exposed_provenance::<i32>(object.word(2)).add(4).read() };
                self.out.bytes(b", \"fd\":");
                self.out.signed(i64::from(descriptor));
            }
            _ => {}
        }
    }

    fn variables(&mut self, object: Object) {
        if GTE_3_3 && object.embeds_variables() {
            self.out.bytes(b", \"embedded\":true");
        }
        self.out.number_after(b", \"ivars\":", object.variables());
        if self.vm.is_too_complex(object) {
            self.out.bytes(b", \"too_complex_shape\":true");
        }
    }

    /// Of a class: how many variants of it there are in boxes.
    fn variations(&mut self, object: Object) {
        if let Some(variations) = self.vm.functions.variations.filter(|_| object.kind() == types::T_CLASS) {
            // SAFETY: a class of the heap; reads a number.
            let count = unsafe { variations(object.value()) };
            self.out.number_after(b", \"variation_count\":", u64::from(count));
        }
    }

    fn superclass(&mut self, object: Object) {
        // SAFETY: a class or module of the heap; reads a word.
        let above = unsafe { (self.vm.functions.superclass)(object.value()) } as usize;
        if above != 0 {
            self.out.bytes(b", \"superclass\":");
            self.out.address(above);
        }
    }

    fn class_name(&mut self, object: Object) {
        let functions = &self.vm.functions;
        // SAFETY: classes of the heap; a name is the string that the class holds, or nil.
        let (name, real) = unsafe {
            let name = (functions.class_name)(object.value());
            if atlas::is_string(name) {
                (name, false)
            } else {
                let class = (functions.real_class)(object.value());
                (if class == 0 { 0 } else { (functions.class_name)(class) }, true)
            }
        };
        if atlas::is_string(name) {
            self.out.bytes(if real { b", \"real_class_name\":" } else { b", \"name\":" });
            // SAFETY: a string of the heap.
            self.out.text(unsafe { Object::read(name as usize) }.string());
        }
        if object.has(Object::SINGLETON) && object.kind() == types::T_CLASS {
            self.out.bytes(b", \"singleton\":true");
            self.singleton(object);
        }
    }

    /// Writes the fields of an object of the VM.
    fn internal(&mut self, object: Object) {
        let kind = object.imemo_kind();
        self.out.bytes(b", \"imemo_type\":\"");
        // SAFETY: a kind that is in the heap; the answer is null or a constant.
        unsafe {
            let name = (self.vm.functions.imemo_name)(kind as i32);
            self.out.bytes(if name.is_null() { b"unknown" } else { CStr::from_ptr(name).to_bytes() });
        }
        self.out.bytes(b"\"");
        if !GTE_3_3 {
        } else if kind == RUBY.kinds.call_info && object.word(2) != 0 {
            self.out.bytes(b", \"mid\":");
            self.name_of(object.word(2));
        } else if kind == RUBY.kinds.call_cache && has_class(object) && self.is_object(object.word(2)) {
            // SAFETY: an object of the heap: the method's entry, whose fourth word is the name that was called.
            let called = unsafe { Object::read(object.word(2)) };
            if called.kind() == types::T_IMEMO && called.word(3) != 0 {
                self.out.bytes(b", \"called_id\":");
                self.name_of(called.word(3));
                if object.word(1) != 0 {
                    self.out.bytes(b", \"receiver_class\":");
                    self.out.address(object.word(1));
                }
            }
        }
    }

    fn name_of(&mut self, id: usize) {
        const SCOPE_BITS: u32 = 4;
        // SAFETY: a number that stands for a name, or that Ruby does not know: then it is 0.
        let name = unsafe { (self.vm.functions.name_of)(id as ID) };
        if atlas::is_string(name) {
            // SAFETY: a string of the heap.
            self.out.text(unsafe { Object::read(name as usize) }.string());
        } else {
            self.out.bytes(b"\"ID_INTERNAL(");
            self.out.number((id >> SCOPE_BITS) as u64);
            self.out.bytes(b")\"");
        }
    }

    /// Whether an object is at this address.
    fn is_object(&self, address: usize) -> bool {
        let after = self.pages.partition_point(|page| page.start <= address);
        after.checked_sub(1).and_then(|index| self.pages.get(index)).is_some_and(|page| {
            address < page.end
                && (address - page.start).is_multiple_of(page.stride)
                && page.is_object(address)
        })
    }

    fn references_of(&mut self, object: Object, slot_size: usize) {
        self.references = 0;
        if self.direct_references(object, slot_size) {
            return;
        }
        self.names.clear();
        let asks = object.kind() == types::T_DATA && edges::Ours::are_of(object.value());
        if asks {
            self.ours_left = Some(self.ours);
        } else if self.ours_left.is_some() {
            self.ours_left = None;
        }
        // SAFETY: an object of the heap; the writer outlives the call, and no other code uses it meanwhile.
        unsafe {
            (self.vm.functions.references)(object.value(), on_reference, std::ptr::from_mut(self).cast());
        }
        if self.references == 0 {
            return;
        }
        self.out.bytes(b"]");
        let in_order =
            object.kind() == types::T_ARRAY && usize::try_from(object.array_length()) == Ok(self.references);
        if in_order && !object.has(Object::SHARED) {
            return;
        }
        let names = &mut self.names;
        edges::for_each_edge(object.value(), &mut |child, name| {
            if !name.is_ours() {
                names.add(child as usize, name);
            }
        });
        self.names.write(&mut self.out);
    }

    #[inline]
    fn reference(&mut self, to: usize) {
        if to == self.class || self.ours_left.as_mut().is_some_and(|ours| ours.take(to as VALUE)) {
            return;
        }
        self.names.reference(to);
        self.out_reference(to);
    }

    /// Writes a reference, which has a name or is to get one.
    #[inline(always)]
    pub(super) fn out_reference(&mut self, to: usize) {
        /// References of a long line. Each line tells the host that the copy goes on, and a long one does now and then.
        const MANY: usize = 1 << 14;
        out_reference(&mut self.out, &mut self.references, to);
        if self.references.is_multiple_of(MANY) {
            self.live();
        }
    }

    /// Where a closure was made.
    fn place_of(&mut self, object: Object) {
        let Some(place) = edges::place_of(object.value()) else { return };
        self.out.bytes(b", \"at\":\"");
        self.out.inner_text(place.path);
        self.out.bytes(b":");
        self.out.number(place.line as u64);
        self.out.bytes(b"\"");
        if !place.label.is_empty() {
            self.out.bytes(b", \"label\":");
            self.out.text(place.label);
        }
    }
}

/// Writes a reference; `count` are those of the line so far.
#[inline(always)]
pub(super) fn out_reference(out: &mut Output<'_>, count: &mut usize, to: usize) {
    if *count == 0 {
        out.address_after(b", \"references\":[", to);
    } else {
        out.address_after(b", ", to);
    }
    *count += 1;
}

unsafe extern "C" fn on_reference(to: VALUE, writer: *mut c_void) {
    // SAFETY: the writer that asked.
    unsafe { &mut *writer.cast::<Writer<'_>>() }.reference(to as usize);
}

unsafe extern "C" fn on_root(category: *const c_char, to: VALUE, writer: *mut c_void) {
    // SAFETY: the writer that asked.
    unsafe { &mut *writer.cast::<Writer<'_>>() }.root(category, to as usize);
}

/// Whether a cache of a call has a class: it loses it when the class is collected.
fn has_class(cache: Object) -> bool {
    cache.word(1) != rb_sys::Qundef as usize
}
