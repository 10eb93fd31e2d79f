//! Kinds of things with their counts and bytes, as a table.

use super::names::Names;
use super::printable;
use super::tables::{Aligned, dressed};
use super::units::{bytes, count, counted, share};

/// Kinds of things, the greatest first.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// What they are, in the singular.
    pub what: String,
    /// What the names are.
    pub column: String,
    /// The folder to which names are relative, if they are paths.
    pub root: Option<Vec<u8>>,
    /// Whether the names are paths.
    pub are_paths: bool,
    /// Name, count and bytes of each kind.
    pub rows: Vec<(Vec<u8>, i64, i64)>,
}

impl Counts {
    /// At most so many rows, and what is left out.
    #[must_use]
    pub fn text(&self, top: Option<usize>, colour: bool) -> String {
        let sums = |rows: &[(Vec<u8>, i64, i64)]| {
            rows.iter().fold((0, 0), |sum: (i64, i64), row| (sum.0 + row.1, sum.1 + row.2))
        };
        let (all, size) = sums(&self.rows);
        let (shown, rest) = self.rows.split_at(top.unwrap_or(usize::MAX).min(self.rows.len()));
        let names = Names::new(self.root.as_deref());
        let cells: Vec<Vec<String>> =
            shown.iter().map(|row| vec![bytes(row.2), share(row.2, size), count(row.1)]).collect();
        let aligned = Aligned::new(&["bytes", "share", "count"], &cells);
        let head = format!("{}, {}, by {}:", counted(all, &self.what), bytes(size), self.column);
        let mut lines = vec![dressed(colour, "1", &head), String::new()];
        lines.push(dressed(colour, "2", &aligned.head(&self.column)));
        for ((name, ..), cells) in shown.iter().zip(&cells) {
            let name = if self.are_paths { names.short(name, true) } else { printable(name) };
            lines.push(aligned.line(cells, &name));
        }
        if !rest.is_empty() {
            lines.push(String::new());
            lines.push(format!("{} more, {}", count(rest.len() as i64), bytes(sums(rest).1)));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
