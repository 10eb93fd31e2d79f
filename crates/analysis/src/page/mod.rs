//! The frame and the style of all pages. A page is one file that loads nothing: its Content-Security-Policy names the
//! hashes of its style and script, so that nothing else in it can run. All texts are escaped.

use std::io::{self, Write};

use crate::json::{self, Bytes};
use crate::text::printable;

const STYLE: &str = include_str!("style.css");
const STYLE_HASH: &str = "sha256-ifNY+q0dtKOLlEzfZ3oOxSXyQ40Mw7aAmzZTvQJrsE0=";
const COMMON: &str = include_str!("common.js");
/// The text of a scripted page for browsers without scripts.
const NO_SCRIPT: &str = "The figures of this page are drawn by a script, which this browser does not run.";

/// The parts of a page's script behind the common one, and the hash of all.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    parts: &'static [&'static str],
    hash: &'static str,
}

/// Draws a flame graph of `data`.
pub const FLAME: Script = Script {
    parts: &[include_str!("flame_tree.js"), include_str!("flame.js")],
    hash: "sha256-1y0DA+CCQiabGUgFFR4JqmYtgKs6FhWp61Hr7rz3sEc=",
};

/// Draws a treemap of the rows in `data` into the figure `areas`.
pub const AREAS: Script = Script {
    parts: &[include_str!("areas.js")],
    hash: "sha256-4TEV7yPCpCDDo/un3YDYhFli7e6O8UkUktZDeawej6A=",
};

/// The HTML of that figure.
pub const AREAS_BODY: &str = "<svg id=\"areas\" viewBox=\"0 0 1000 420\" role=\"img\"></svg>";

impl Script {
    /// A script of another crate, with its hash behind the common part.
    #[must_use]
    pub const fn new(parts: &'static [&'static str], hash: &'static str) -> Self {
        Self { parts, hash }
    }

    fn text(&self) -> String {
        format!("\n{COMMON}{}", self.parts.concat())
    }
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page<'a> {
    /// The title in the browser.
    pub title: &'a str,
    /// The first line; of a page that a script fills none.
    pub heading: Option<&'a str>,
    /// Lines below it.
    pub facts: &'a [String],
    /// Sentences that a reader needs first.
    pub verdict: &'a [String],
    /// What to beware of.
    pub notes: &'a [String],
    /// HTML.
    pub body: &'a str,
    /// The script, and JSON for it.
    pub script: Option<(Script, &'a str)>,
}

impl Page<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let allowed = self.script.as_ref().map_or_else(String::new, |(script, _)| {
            format!("; img-src data:; script-src '{}'; base-uri 'none'; form-action 'none'", script.hash)
        });
        // Without it a browser looks for an icon.
        let icon = if self.script.is_some() { "<link rel=\"icon\" href=\"data:,\">\n" } else { "" };
        let facts: Vec<String> = self.facts.iter().map(|fact| escaped(fact)).collect();
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src '{STYLE_HASH}'{allowed}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             {icon}<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <h1 id=\"sentence\">{}</h1>\n<p id=\"facts\">{}</p>\n<ul id=\"notes\">",
            escaped(self.title),
            escaped(self.heading.unwrap_or(NO_SCRIPT)),
            facts.join("<br>"),
        )?;
        for sentence in self.verdict {
            write!(out, "<li>{}</li>", escaped(sentence))?;
        }
        for note in self.notes {
            write!(out, "<li class=\"note\">{}</li>", escaped(note))?;
        }
        write!(out, "</ul>\n{}\n", self.body)?;
        if let Some((script, data)) = &self.script {
            // In JSON it stands within texts only, and would begin the end of the script.
            let data = data.replace('<', "\\u003c");
            write!(
                out,
                "<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{}</script>\n",
                script.text()
            )?;
        }
        out.write_all(b"</body>\n</html>\n")
    }
}

/// A page of tables.
#[derive(Clone, Debug)]
pub(crate) struct Sheet<'a> {
    /// The title and first line.
    pub(crate) heading: &'a str,
    /// Lines below it.
    pub(crate) facts: &'a [String],
    /// Sentences that a reader needs first.
    pub(crate) verdict: &'a [String],
    /// What to beware of.
    pub(crate) notes: &'a [String],
    /// The tables.
    pub(crate) tables: &'a [Table<'a>],
    /// Names and bytes for a treemap.
    pub(crate) areas: Option<&'a [(&'a str, i64)]>,
}

/// A table of texts. The last cell of a row is a name.
#[derive(Clone, Debug)]
pub(crate) struct Table<'a> {
    /// Its title.
    pub(crate) title: &'a str,
    /// Titles of its columns.
    pub(crate) heads: &'a [&'a str],
    /// Its rows.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Sheet<'_> {
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let shown = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| printable(text.as_bytes())).collect()
        };
        let heading = printable(self.heading.as_bytes());
        let data = self.areas.map(areas_data);
        let mut body: Vec<String> = data.iter().map(|_| AREAS_BODY.to_owned()).collect();
        for Table { title, heads, rows } in self.tables {
            let rows: Vec<String> = rows.iter().map(|cells| named_row(&shown(cells))).collect();
            body.push(table(title, heads, &rows, None));
        }
        let page = Page {
            title: &heading,
            heading: Some(&heading),
            facts: &shown(self.facts),
            verdict: &shown(self.verdict),
            notes: &shown(self.notes),
            body: &body.join("\n"),
            script: data.as_deref().map(|data| (AREAS, data)),
        };
        page.write(out)
    }
}

fn named_row(cells: &[String]) -> String {
    let Some((name, others)) = cells.split_last() else { return row(&[]) };
    let mut cells: Vec<String> = others.iter().map(|text| cell(text, 0.0)).collect();
    cells.push(named_cell(name.as_bytes(), name));
    row(&cells)
}

/// As the script takes them.
fn areas_data(areas: &[(&str, i64)]) -> String {
    let area = |(name, bytes): &(&str, i64)| {
        format!("[{},{bytes}]", json::text(printable(name.as_bytes()).as_bytes(), Bytes::Shown))
    };
    format!("{{\"rows\":[{}]}}", areas.iter().map(area).collect::<Vec<_>>().join(","))
}

/// Harmless between tags and in attributes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A table. `rest` is what is not shown.
#[must_use]
pub fn table(title: &str, heads: &[&str], rows: &[String], rest: Option<&str>) -> String {
    let titles: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    let more = rest.map_or_else(String::new, |rest| {
        format!("\n<tr><td class=\"more\" colspan=\"{}\">{}</td></tr>", heads.len(), escaped(rest))
    });
    format!("<h2>{}</h2>\n<table>\n<tr>{titles}</tr>\n{}{more}\n</table>", escaped(title), rows.join("\n"))
}

/// A row of its cells.
#[must_use]
pub fn row(cells: &[String]) -> String {
    format!("<tr>{}</tr>", cells.concat())
}

/// A cell; the sign of `growth` gives it a colour.
#[must_use]
pub fn cell(text: &str, growth: f64) -> String {
    let class = if growth > 0.0 {
        " class=\"up\""
    } else if growth < 0.0 {
        " class=\"down\""
    } else {
        ""
    };
    format!("<td{class}>{}</td>", escaped(text))
}

/// A cell with a bar of so many percent; without one if that is no number.
pub(crate) fn bar(percent: f64, growth: f64) -> String {
    if !percent.is_finite() {
        return "<td></td>".to_owned();
    }
    let class = if growth < 0.0 { " class=\"down\"" } else { "" };
    format!(
        "<td><svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\">\
         <rect width=\"{:?}\" height=\"1\"{class}></rect></svg></td>",
        (percent * 10.0).round() / 10.0
    )
}

/// The last cell of a row: a whole name, and what is shown of it.
#[must_use]
pub fn named_cell(whole: &[u8], short: &str) -> String {
    format!("<td title=\"{}\">{}</td>", escaped(&printable(whole)), escaped(short))
}
