//! What a dump leaves out of the program's own data. A further kind is a field here, and the places that use it.

/// What is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redaction {
    /// What strings hold, but for their lengths and hashes.
    pub(crate) strings: bool,
}

impl Redaction {
    /// By the words that Ruby has for the kinds: `HeapCopy::REDACTIONS`.
    ///
    /// # Errors
    /// The word that is none of them.
    pub(crate) fn from_words(words: &[String]) -> Result<Self, &str> {
        let mut redaction = Self::default();
        for word in words {
            match word.as_str() {
                "strings" => redaction.strings = true,
                other => return Err(other),
            }
        }
        Ok(redaction)
    }
}
