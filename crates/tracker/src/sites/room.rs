//! The bytes that the interner may still map.

/// A number of bytes that is never exceeded.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes that are mapped.
    bytes: usize,
    most: usize,
    /// The part of the bytes that stays mapped when the interner is emptied.
    kept: usize,
}

impl Room {
    pub(super) const fn none() -> Self {
        Self { bytes: 0, most: 0, kept: 0 }
    }

    /// Sets the limit, which may be below the bytes that are already mapped.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Takes so many bytes, and gives so many others back; `false`: there is no room for that.
    pub(super) fn take(&mut self, bytes: usize, in_place_of: usize) -> bool {
        let after = self.bytes.saturating_add(bytes).saturating_sub(in_place_of);
        let fits = after <= self.most;
        if fits {
            self.bytes = after;
        }
        fits
    }

    /// Returns bytes that were taken and are not needed.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Takes so many bytes that the interner does not map itself, and that stay when it is emptied.
    pub(super) fn take_for_good(&mut self, bytes: usize) -> bool {
        let fits = self.take(bytes, 0);
        if fits {
            self.kept += bytes;
        }
        fits
    }

    /// Counts only the lasting part as mapped.
    pub(super) fn clear(&mut self) {
        self.bytes = self.kept;
    }
}
