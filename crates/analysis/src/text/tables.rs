//! Columns of figures, aligned to the right, before one column of names that may be of any length.

/// How wide each column of figures is.
pub(crate) struct Aligned {
    titles: Vec<String>,
    widths: Vec<usize>,
}

impl Aligned {
    pub(crate) fn new(titles: &[&str], rows: &[Vec<String>]) -> Self {
        let width = |cell: &str| cell.chars().count();
        let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max();
        let widths = titles.iter().enumerate().map(|(at, title)| widest(at).unwrap_or(0).max(width(title)));
        Self { widths: widths.collect(), titles: titles.iter().map(|title| (*title).to_owned()).collect() }
    }

    /// The titles.
    pub(crate) fn head(&self, last: &str) -> String {
        self.line(&self.titles, last)
    }

    /// One row.
    pub(crate) fn line(&self, cells: &[String], last: &str) -> String {
        let mut line: String =
            cells.iter().zip(&self.widths).map(|(cell, wide)| format!("{cell:>wide$}  ")).collect();
        line.push_str(last);
        line
    }
}

/// With the code of a colour, if colours are wanted.
pub(crate) fn dressed(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
