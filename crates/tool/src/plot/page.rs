//! The plot as an HTML page, with a table of the processes. The page loads nothing from other places.

use super::history::{Curve, History};
use super::image;
use super::record::Metric;
use crate::units::count;
use memintro_analysis::page::{Page, escaped};
use std::fmt::Write;

const HEADS: [&str; 5] = ["lines", "first RSS, MiB", "last RSS, MiB", "greatest RSS, MiB", "process"];

/// The text of an HTML file.
pub(super) fn page(history: &History, names: &[String]) -> Result<String, String> {
    let svg = image::svg(history, names)?;
    let heads = HEADS.map(|head| format!("<th>{head}</th>")).concat();
    let mut body = format!("<div class=\"plot\">{svg}</div>\n<table>\n<tr>{heads}</tr>\n");
    for (at, curve) in history.curves.iter().enumerate() {
        row(&mut body, curve, &names[at], &image::colour_of_page(at));
    }
    body.push_str("</table>");
    let mut page = Vec::new();
    let title = "memintro plot";
    Page { title, heading: Some(title), body: &body, ..Page::default() }
        .write(&mut page)
        .map_err(|error| error.to_string())?;
    String::from_utf8(page).map_err(|error| error.to_string())
}

fn row(rows: &mut String, curve: &Curve, name: &str, colour: &str) {
    let rss: Vec<f64> = curve.points(Metric::Rss).map(|(_, bytes)| bytes / 1_048_576.0).collect();
    let cell = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{value:.1}"));
    let greatest = rss.iter().copied().reduce(f64::max);
    // Writing to a String cannot fail.
    let _ = writeln!(
        rows,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><svg class=\"swatch\" viewBox=\"0 0 1 1\" \
         preserveAspectRatio=\"none\"><rect width=\"1\" height=\"1\" fill=\"{colour}\"></rect></svg>{}</td></tr>",
        count(curve.samples.len() as u64),
        cell(rss.first().copied()),
        cell(rss.last().copied()),
        cell(greatest),
        escaped(name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_never_markup() {
        let mut history = History::default();
        history.take(0, b"MEMORY[1]: time: 2026-01-01 12:00:00 rss: 1.5 MB, live_objects: 5\n");
        let page = page(&history, &["<script>&\"".to_string()]).unwrap();
        assert!(
            page.contains("<tr><td>1</td><td>1.5</td><td>1.5</td><td>1.5</td>")
                && page.contains("&lt;script&gt;&amp;&quot;</td>")
        );
        assert!(!page.contains("<script>"));
    }
}
