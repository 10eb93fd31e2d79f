//! What strings hold: their text, or a hash of it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering;

use super::output::Output;
use super::redaction::Redaction;
use super::state::Progress;
use super::vm::{Coding, Encoding, Vm};
use crate::atlas::{Coderange, Object, RUBY};

const GTE_3_3: bool = RUBY.dump.has_shapes;
/// After so many bytes of a long string, the host is told that the copy goes on.
const STEP: usize = 1 << 20;

pub(super) struct Strings<'a> {
    pub(super) redaction: Redaction,
    /// With a random key of this dump.
    pub(super) key: &'a RandomState,
}

impl Strings<'_> {
    pub(super) fn fields(&self, out: &mut Output<'_>, vm: &Vm, progress: &Progress, object: Object) {
        let range = if GTE_3_3 { object.coderange() } else { looked_at(vm, object) };
        if !object.has(Object::OUTSIDE) {
            out.bytes(b", \"embedded\":true");
        }
        if !GTE_3_3 && range == Coderange::Broken {
            out.bytes(b", \"broken\":true");
        }
        if object.has(Object::INTERNED) {
            out.bytes(b", \"fstring\":true");
        }
        if object.is_chilled() {
            out.bytes(b", \"chilled\":true");
        }
        if object.has(Object::SHARED | Object::OUTSIDE) {
            out.bytes(b", \"shared\":true");
        } else {
            self.content(out, vm, progress, object, range, self.redaction);
        }
        if let Some(encoding) = vm.encodings.get(object.encoding()) {
            out.padded::<{ Encoding::LONGEST }, 32>(&encoding.member);
        }
        if GTE_3_3 {
            out.bytes(b", \"coderange\":\"");
            out.bytes(range.name());
            out.bytes(b"\"");
            if range == Coderange::Broken {
                out.bytes(b", \"broken\":true");
            }
        }
    }

    /// Names of code are no secrets.
    pub(super) fn content_of_symbol(&self, out: &mut Output<'_>, vm: &Vm, progress: &Progress, text: Object) {
        let range = if GTE_3_3 { text.coderange() } else { looked_at(vm, text) };
        self.content(out, vm, progress, text, range, Redaction::default());
    }

    fn content(
        &self,
        out: &mut Output<'_>,
        vm: &Vm,
        progress: &Progress,
        text: Object,
        range: Coderange,
        redaction: Redaction,
    ) {
        let bytes = text.string();
        out.number_after(b", \"bytesize\":", bytes.len() as u64);
        if text.has(Object::OUTSIDE) && !text.has(Object::SHARED) && text.capacity() != bytes.len() {
            out.bytes(b", \"capacity\":");
            out.number(text.capacity() as u64);
        }
        let compatible = vm.encodings.get(text.encoding()).is_some_and(|encoding| encoding.ascii_compatible);
        let is_ascii = match range {
            Coderange::Ascii => true,
            Coderange::Unknown => GTE_3_3 && bytes.is_ascii(),
            _ => false,
        };
        if compatible && is_ascii && !redaction.strings && !(GTE_3_3 && bytes.is_empty()) {
            out.bytes(b", \"value\":\"");
            out.ascii(bytes);
            out.bytes(b"\"");
        } else if !bytes.is_empty() {
            let mut hasher = self.key.build_hasher();
            for piece in bytes.chunks(STEP) {
                hasher.write(piece);
                if bytes.len() > STEP {
                    progress.beat.fetch_add(1, Ordering::Relaxed);
                }
            }
            out.bytes(b", \"value_hash\":\"");
            out.hash(hasher.finish());
            out.bytes(b"\"");
        }
    }
}

/// Ruby 3.1 looks at each string when it dumps it.
fn looked_at(vm: &Vm, object: Object) -> Coderange {
    let known = object.coderange();
    if known != Coderange::Unknown {
        return known;
    }
    let Some(encoding) = vm.encodings.get(object.encoding()) else { return Coderange::Unknown };
    let bytes = object.string();
    if encoding.ascii_compatible && bytes.is_ascii() {
        return Coderange::Ascii;
    }
    match encoding.coding {
        Coding::Binary => Coderange::Valid,
        Coding::Ascii => Coderange::Broken,
        Coding::Utf8 if std::str::from_utf8(bytes).is_ok() => Coderange::Valid,
        Coding::Utf8 => Coderange::Broken,
        Coding::Other if bytes.is_empty() => Coderange::Valid,
        Coding::Other if encoding.loaded => {
            // SAFETY: a string of the heap, whose flags may change in the copy; its encoding has been loaded.
            match unsafe { rb_sys::rb_enc_str_coderange(object.value()) } >> 20 {
                1 => Coderange::Ascii,
                3 => Coderange::Broken,
                _ => Coderange::Valid,
            }
        }
        Coding::Other => Coderange::Unknown,
    }
}
