//! Ruby strings for names that may contain any bytes.

use magnus::{Error, RArray, RString, Ruby, encoding::EncodingCapable};

/// UTF-8 if the bytes are valid, else binary, because a path may contain any bytes.
pub(crate) fn string(ruby: &Ruby, bytes: &[u8]) -> RString {
    let string = ruby.str_from_slice(bytes);
    if std::str::from_utf8(bytes).is_ok() {
        // A new string is never frozen and UTF-8 always exists, so this cannot fail.
        let _ = string.enc_set(ruby.utf8_encindex());
    }
    string
}

/// The bytes of all of them.
pub(super) fn all_bytes(strings: RArray) -> Result<Vec<Vec<u8>>, Error> {
    (0..strings.len())
        .map(|index| {
            let string = strings.entry::<RString>(index.cast_signed())?;
            // SAFETY: copied at once.
            Ok(unsafe { string.as_slice() }.to_vec())
        })
        .collect()
}
