//! The results of a walk over Ruby's heap, as rows without Ruby objects.

/// Objects with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name, which may be any bytes.
    pub name: Vec<u8>,
    /// How many there are.
    pub count: u64,
    /// Their bytes, if they were requested.
    pub bytes: Option<u64>,
}

/// Instruction sequences of one file, or of one line of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the file among the texts.
    pub path: u32,
    /// The line; none for the whole file.
    pub line: Option<i32>,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All instruction sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Iseqs {
    /// Names of files.
    pub texts: Vec<Vec<u8>>,
    /// By file, most bytes first.
    pub paths: Vec<Place>,
    /// By file and line, most bytes first.
    pub locations: Vec<Place>,
}

impl Iseqs {
    /// How many there are, and their bytes.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        self.paths.iter().fold((0, 0), |(count, bytes), row| (count + row.count, bytes + row.bytes))
    }

    /// `path`, or `path:line`.
    #[must_use]
    pub fn name(&self, place: &Place) -> Vec<u8> {
        let mut name = self.texts.get(place.path as usize).cloned().unwrap_or_default();
        if let Some(line) = place.line {
            name.extend_from_slice(format!(":{line}").as_bytes());
        }
        name
    }
}

/// Pages whose slots have one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of a slot.
    pub slot_size: u64,
    /// Pages.
    pub pages: u64,
    /// Slots on them.
    pub slots: u64,
    /// Slots that are taken.
    pub live: u64,
    /// Pages with few used slots.
    pub sparse_pages: u64,
    /// Slots that are taken on these.
    pub sparse_live: u64,
    /// Pages without any object.
    pub empty_pages: u64,
}

/// Holders of sparse pages: objects of one name, and the pages that have one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Their class.
    pub name: Vec<u8>,
    /// How many there are on sparse pages.
    pub count: u64,
    /// How many sparse pages have one.
    pub pages: u64,
}

/// How full the pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// By size of slot, the smallest first.
    pub pools: Vec<Pool>,
    /// Most pages first.
    pub holders: Vec<Holder>,
}

/// All results that were requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// By Ruby's own types, most objects first.
    pub types: Option<Vec<Row>>,
    /// By class, most bytes first.
    pub classes: Option<Vec<Row>>,
    /// Internal objects, by kind, most bytes first.
    pub internals: Option<Vec<Row>>,
    /// Compiled code.
    pub iseqs: Option<Iseqs>,
    /// Pages.
    pub occupancy: Option<Occupancy>,
}
