//! The plot as an HTML page, with a table of the processes. The page loads nothing from other places.

use super::axis::with_commas;
use super::history::{Curve, History};
use super::image;
use super::record::Metric;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#282828;max-width:1200px;margin:24px auto;\
padding:0 16px}svg{max-width:100%;height:auto}table{border-collapse:collapse}th,td{padding:4px 14px;text-align:right;\
border-bottom:1px solid #e2e2e2}th:first-child,td:first-child{text-align:left}i{display:inline-block;width:20px;\
height:5px;margin-right:8px;vertical-align:middle}";

/// The text of an HTML file.
pub(super) fn page(history: &History, names: &[String]) -> Result<String, String> {
    let svg = image::svg(history, names)?;
    let mut rows = String::new();
    for (at, curve) in history.curves.iter().enumerate() {
        row(&mut rows, curve, &names[at], &image::colour_of_page(at));
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>memintro plot</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{svg}\n<table>\n<thead><tr><th>process</th><th>lines</th>\
         <th>first RSS, MiB</th><th>last RSS, MiB</th><th>greatest RSS, MiB</th></tr></thead>\n<tbody>\n{rows}\
         </tbody>\n</table>\n</body>\n</html>\n"
    ))
}

fn row(rows: &mut String, curve: &Curve, name: &str, colour: &str) {
    let rss: Vec<f64> = curve.points(Metric::Rss).map(|(_, bytes)| bytes / 1_048_576.0).collect();
    let cell = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{value:.1}"));
    let greatest = rss.iter().copied().reduce(f64::max);
    // Writing to a String cannot fail.
    let _ = writeln!(
        rows,
        "<tr><td><i style=\"background:{colour}\"></i>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escape(name),
        with_commas(&curve.samples.len().to_string()),
        cell(rss.first().copied()),
        cell(rss.last().copied()),
        cell(greatest)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
            page.contains("&lt;script&gt;&amp;&quot;</td><td>1</td><td>1.5</td><td>1.5</td><td>1.5</td>")
        );
        assert!(!page.contains("<script>"));
    }
}
