//! An account as a text and as a page.

use std::io::{self, Write};

use memintro_abi::AccountRow;

use super::{Account, Row};
use crate::page::{Sheet, Table};
use crate::text::printable;
use crate::text::tables::dressed;
use crate::text::units::{bytes, counted, share};

/// Characters of the longest bar.
const BAR: usize = 30;
/// Stacks of fewer bytes are not told apart.
const LEAST_STACKS: i64 = 1 << 20;

impl Account {
    /// The sentences, and a table with a bar for each row.
    #[must_use]
    pub fn text(&self, colour: bool) -> String {
        let shares = self.shares();
        let largest = self.rows.iter().map(|row| row.bytes).max().unwrap_or(0).max(1);
        let mut lines: Vec<String> =
            self.verdict.iter().map(|sentence| printable(sentence.as_bytes())).collect();
        if let Some(first) = lines.first_mut() {
            *first = dressed(colour, "1", first);
        }
        lines.push(String::new());
        if shares {
            lines.push(format!("{:>10}   share{:>12}", "bytes", "private"));
        }
        let line = |size: i64, own: Option<i64>, bar: usize, name: &str| {
            let own = if shares {
                format!("{:>12}", own.map_or_else(|| "unknown".to_owned(), bytes))
            } else {
                String::new()
            };
            let part = if size == self.rss { "100.0%".to_owned() } else { share(size, self.rss) };
            format!("{:>10}  {part:>6}{own}  {:<BAR$}  {name}", bytes(size), "#".repeat(bar))
        };
        for row in &self.rows {
            let bar = BAR as i64 * row.bytes.max(0) / largest;
            let name = format!("{}{}{}", row.row.name(), mark(row), stacks(row));
            lines.push(line(row.bytes, row.private_bytes(), bar as usize, &name));
        }
        lines.push(line(self.rss, self.private_bytes(), 0, "RSS"));
        if !self.notes.is_empty() {
            lines.push(String::new());
        }
        lines.extend(self.notes.iter().map(|note| format!("Note: {}.", printable(note.as_bytes()))));
        lines.join("\n")
    }

    /// A page about a process that is called so.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_page(&self, out: &mut impl Write, name: &str) -> io::Result<()> {
        let row = |row: &Row| {
            vec![bytes(row.bytes), share(row.bytes, self.rss), row.basis.clone(), row.row.name().to_owned()]
        };
        let areas: Vec<(&str, i64)> = self.rows.iter().map(|row| (row.row.name(), row.bytes)).collect();
        Sheet {
            heading: &format!("Memory of {name}"),
            facts: &[format!("{} resident; allocator: {}", bytes(self.rss), self.allocator)],
            verdict: &self.verdict,
            notes: &self.notes,
            tables: &[Table {
                title: "Rows",
                heads: &["bytes", "share", "basis", "row"],
                rows: self.rows.iter().map(row).collect(),
            }],
            areas: Some(&areas),
        }
        .write(out)
    }
}

fn mark(row: &Row) -> String {
    if row.basis == "measured" || row.bytes == 0 {
        return String::new();
    }
    format!(" ({})", printable(row.basis.as_bytes()))
}

/// Whose stacks, where they are worth a word.
fn stacks(row: &Row) -> String {
    if row.row != AccountRow::ThreadStacks || row.bytes < LEAST_STACKS {
        return String::new();
    }
    let kind = |(kind, noun): (&str, &str)| {
        let found = row.details.get(kind);
        let count = found.get("count").or_zero();
        (count > 0).then(|| format!("{} {}", counted(count, noun), bytes(found.get("bytes").or_zero())))
    };
    let kinds: Vec<String> =
        [("threads", "thread"), ("fibers", "fiber")].into_iter().filter_map(kind).collect();
    if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) }
}
