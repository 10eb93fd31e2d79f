//! The account of resident memory: rows that add up to it, what they mean, and their texts.

mod copy_on_write;
mod details;
mod growth;
mod mappings;
mod reading;
mod text;
mod verdict;

use memintro_abi::{AccountPart, AccountRow};

pub use growth::Growth;
pub use mappings::of_mappings;
pub use reading::{Counted, Facts, Names, Site};
pub(crate) use verdict::grown;

use crate::value::{Value, members};

/// Where the resident memory of a process is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Resident bytes: the sum of the rows.
    pub rss: i64,
    /// The allocator.
    pub allocator: String,
    /// Milliseconds for which Ruby stood still.
    pub pause_ms: f64,
    /// Sentences: what takes most, and what to do about it.
    pub verdict: Vec<String>,
    /// What could not be read.
    pub notes: Vec<String>,
    /// One for each row of the list.
    pub rows: Vec<Row>,
}

/// What one kind of memory has of RSS.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which one.
    pub row: AccountRow,
    /// Resident bytes; of a growth, what there is more.
    pub bytes: i64,
    /// Of these, those in pages that other processes have as well, where that is known.
    pub shared_bytes: Option<i64>,
    /// `measured`, `derived` or `estimated`.
    pub basis: String,
    /// Finer parts.
    pub details: Value,
}

impl Row {
    fn private_bytes(&self) -> Option<i64> {
        self.shared_bytes.map(|shared| self.bytes.saturating_sub(shared))
    }

    fn to_value(&self) -> Value {
        members([
            ("name", Value::name(self.row.name())),
            ("bytes", self.bytes.into()),
            ("shared_bytes", self.shared_bytes.into()),
            ("basis", Value::name(&self.basis)),
            ("details", self.details.clone()),
        ])
    }

    fn of_value(value: &Value) -> Option<Self> {
        Some(Self {
            row: AccountRow::find(value.get("name").text()?)?,
            bytes: value.get("bytes").or_zero(),
            shared_bytes: value.get("shared_bytes").whole(),
            basis: value.get("basis").text().unwrap_or_default().to_owned(),
            details: value.get("details").clone(),
        })
    }
}

impl Account {
    /// As Ruby takes it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        members([
            ("rss", self.rss.into()),
            ("allocator", Value::name(&self.allocator)),
            ("pause_ms", self.pause_ms.into()),
            ("verdict", self.verdict.clone().into()),
            ("notes", self.notes.clone().into()),
            ("rows", self.rows.iter().map(Row::to_value).collect::<Vec<_>>().into()),
        ])
    }

    /// As Ruby or JSON has it.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        Self {
            rss: value.get("rss").or_zero(),
            allocator: value.get("allocator").text().unwrap_or_default().to_owned(),
            pause_ms: value.get("pause_ms").float().unwrap_or(0.0),
            verdict: value.get("verdict").texts(),
            notes: value.get("notes").texts(),
            rows: value.get("rows").items().iter().filter_map(Row::of_value).collect(),
        }
    }

    fn row(&self, row: AccountRow) -> Option<&Row> {
        self.rows.iter().find(|found| found.row == row)
    }

    fn details(&self, row: AccountRow) -> Value {
        self.row(row).map(|row| row.details.clone()).unwrap_or_default()
    }

    /// Whether some memory besides files is shared, as after a fork. The table then says what is private.
    fn shares(&self) -> bool {
        const LEAST: i64 = 1 << 20;
        let besides_files = self.rows.iter().filter(|row| row.row.part() != AccountPart::Files);
        besides_files.fold(0_i64, |sum, row| sum.saturating_add(row.shared_bytes.unwrap_or(0))) >= LEAST
    }

    /// Resident bytes in pages that no other process has, if they are known of each row.
    fn private_bytes(&self) -> Option<i64> {
        let shared = self.rows.iter().map(|row| row.shared_bytes).sum::<Option<i64>>()?;
        Some(self.rss - shared)
    }
}

#[cfg(test)]
mod tests;
