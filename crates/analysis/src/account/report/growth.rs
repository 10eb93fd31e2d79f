//! What there is more of in a later account.

use super::{Account, Row, verdict};
use crate::advice::Advice;
use crate::text::printable;
use crate::text::units::{bytes, signed_bytes};
use crate::value::{Value, members};

/// Growth between two accounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Growth {
    rss: i64,
    verdict: Vec<String>,
    rows: Vec<Row>,
}

impl Growth {
    /// From one to the other.
    #[must_use]
    pub fn between(earlier: &Account, later: &Account, advice: Advice) -> Self {
        let row = |(now, before): (&Row, &Row)| Row {
            row: now.row,
            bytes: now.bytes - before.bytes,
            shared_bytes: now.shared_bytes.zip(before.shared_bytes).map(|(now, before)| now - before),
            basis: now.basis.clone(),
            details: members([]),
        };
        let rows: Vec<Row> = later.rows.iter().zip(&earlier.rows).map(row).collect();
        let rss = later.rss - earlier.rss;
        // Of equal rows, the first.
        let largest = rows.iter().rev().max_by_key(|row| row.bytes).filter(|row| rss > 0 && row.bytes > 0);
        let sentence = match largest {
            Some(row) => format!(
                "RSS has grown by {}; {}.",
                bytes(rss),
                verdict::grown(row.row, row.bytes, None, advice)
            ),
            None => format!("RSS has not grown ({}).", signed_bytes(rss)),
        };
        Self { rss, verdict: vec![sentence], rows }
    }

    /// As Ruby takes it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        members([
            ("rss", self.rss.into()),
            ("verdict", self.verdict.clone().into()),
            ("rows", self.rows.iter().map(Row::to_value).collect::<Vec<_>>().into()),
        ])
    }

    /// As Ruby has it.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        let Account { rss, verdict, rows, .. } = Account::of_value(value);
        Self { rss, verdict, rows }
    }

    /// The sentence, and a table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines: Vec<String> =
            self.verdict.iter().map(|sentence| printable(sentence.as_bytes())).collect();
        lines.push(String::new());
        let line = |bytes, name: &str| format!("{:>11}  {name}", signed_bytes(bytes));
        lines.extend(self.rows.iter().map(|row| line(row.bytes, row.row.name())));
        lines.push(line(self.rss, "RSS"));
        lines.join("\n")
    }
}
