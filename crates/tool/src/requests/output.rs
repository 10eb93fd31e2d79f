//! The table for people and JSON for programs.

use super::answer::{self, bytes, count, share};
use super::spread::RELATIVE_ERROR;
use super::tally::{By, Group, MOST_NAMES, OTHER, Sums, Tally};
use std::fmt::Write;

const TITLES: [&str; 8] = ["bytes", "share", "requests", "p50", "p95", "max", "calls", "RSS growth"];

/// Text of a sorted [`Tally`]: the answer, a table of the first rows, and the lines that were not counted. `note` is
/// an additional line.
pub(super) fn text(tally: &mut Tally, by: By, top: usize, note: &str) -> String {
    let mut out = format!("{}\n", answer::sentence(tally, by));
    if !note.is_empty() {
        let _ = writeln!(out, "{note}");
    }
    let sums = tally.sums;
    let (processes, more) = tally.processes();
    let _ = writeln!(
        out,
        "{} of {}{}, {}:\n",
        plural(sums.requests, "request", "requests"),
        plural(processes as u64, "process", "processes"),
        if more { " or more" } else { "" },
        plural(tally.groups.len() as u64, "kind", "kinds"),
    );
    let mut inexact = false;
    let rows: Vec<(Vec<String>, String)> = tally
        .groups
        .iter_mut()
        .take(top)
        .map(|group| {
            inexact |= !group.spread.is_exact();
            (cells(group, sums), group.name.clone())
        })
        .collect();
    table(&mut out, &rows);
    if tally.groups.len() > rows.len() {
        let rest: u128 = tally.groups[rows.len()..].iter().map(|group| group.sums.bytes).sum();
        let _ = writeln!(
            out,
            "\n{}, {}",
            plural((tally.groups.len() - rows.len()) as u64, "more kind", "more kinds"),
            bytes(rest as i128)
        );
    }
    out.push_str(
        "\nbytes and calls are of the request's own thread; RSS growth is of the whole process during the request\n",
    );
    if inexact {
        let _ = writeln!(out, "~: within {:.1}%", RELATIVE_ERROR * 100.0);
    }
    for remark in remarks(tally) {
        let _ = writeln!(out, "{remark}");
    }
    out
}

fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

fn cells(group: &mut Group, all: Sums) -> Vec<String> {
    let own = group.sums;
    let mark = if group.spread.is_exact() { "" } else { "~" };
    let growth = format!("{}{}", if own.rss > 0 { "+" } else { "" }, bytes(own.rss));
    if own.known == 0 {
        let none = || "-".to_string();
        return vec![none(), none(), count(own.requests), none(), none(), none(), none(), growth];
    }
    vec![
        bytes(own.bytes as i128),
        share(own.bytes as f64, all.bytes as f64),
        count(own.requests),
        format!("{mark}{}", bytes(i128::from(group.spread.percentile(50)))),
        format!("{mark}{}", bytes(i128::from(group.spread.percentile(95)))),
        bytes(i128::from(group.spread.greatest())),
        count(u64::try_from(own.calls).unwrap_or(u64::MAX)),
        growth,
    ]
}

fn table(out: &mut String, rows: &[(Vec<String>, String)]) {
    let width = |at: usize| {
        rows.iter().map(|(cells, _)| cells[at].chars().count()).max().unwrap_or(0).max(TITLES[at].len())
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let titles: Vec<String> = TITLES.map(String::from).to_vec();
    for (cells, name) in
        std::iter::once((&titles, "request")).chain(rows.iter().map(|(c, n)| (c, n.as_str())))
    {
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(out, "{cell:>width$}  ");
        }
        let _ = writeln!(out, "{name}");
    }
}

/// Notes about lines that are not, or not fully, in the table.
fn remarks(tally: &Tally) -> Vec<String> {
    let mut all = Vec::new();
    let unknown = tally.sums.requests - tally.sums.known;
    if unknown > 0 && tally.sums.known > 0 {
        all.push(format!(
            "{} without malloc_bytes: nothing was tracked then",
            plural(unknown, "line", "lines")
        ));
    }
    if tally.is_full {
        all.push(format!(
            "more than {} kinds: what came later is together in {OTHER}; docs/requests.md says which paths are one kind",
            count(MOST_NAMES as u64)
        ));
    }
    if tally.dropped > 0 {
        all.push(format!(
            "{} could not be written when they were due",
            plural(tally.dropped, "line", "lines")
        ));
    }
    if tally.absurd > 0 {
        all.push(format!(
            "{} with a figure beyond belief, which is left out",
            plural(tally.absurd, "line", "lines")
        ));
    }
    if tally.memory > 0 {
        all.push(format!("{} of no request", plural(tally.memory, "MEMORY line", "MEMORY lines")));
    }
    if tally.skipped > 0 {
        all.push(format!("{} skipped", plural(tally.skipped, "other line", "other lines")));
    }
    all
}

/// JSON of a sorted [`Tally`].
pub(super) fn json(tally: &mut Tally, by: By, name: &str, top: usize, note: &str) -> String {
    let answer = answer::sentence(tally, by);
    let sums = tally.sums;
    let (processes, _) = tally.processes();
    let kinds = tally.groups.len();
    let rows: Vec<String> = tally.groups.iter_mut().take(top).map(|group| {
        let (own, spread) = (group.sums, &mut group.spread);
        let quantiles = [spread.percentile(50), spread.percentile(95), spread.greatest()]
            .map(|figure| if own.known > 0 { figure.to_string() } else { "null".to_string() });
        let [p50, p95, max] = quantiles;
        format!(
            "{{\"request\":{},{},\"malloc_bytes_p50\":{p50},\"malloc_bytes_p95\":{p95},\"malloc_bytes_max\":{max},\
             \"quantiles_exact\":{}}}",
            quoted(&group.name), members(own), spread.is_exact()
        )
    }).collect();
    format!(
        "{{\"version\":1,\"by\":{},\"answer\":{},\"note\":{},\"processes\":{processes},\"kinds\":{kinds},\
         \"lines\":{{\"other_memory\":{},\"skipped\":{},\"dropped\":{},\"beyond_belief\":{}}},\"totals\":{{{}}},\"rows\":[{}]}}\n",
        quoted(name),
        quoted(&answer),
        if note.is_empty() { "null".to_string() } else { quoted(note) },
        tally.memory,
        tally.skipped,
        tally.dropped,
        tally.absurd,
        members(sums),
        rows.join(",")
    )
}

fn members(sums: Sums) -> String {
    let known = |figure: u128| if sums.known > 0 { figure.to_string() } else { "null".to_string() };
    format!(
        "\"requests\":{},\"malloc_known\":{},\"malloc_bytes\":{},\"malloc_calls\":{},\"rss_delta_bytes\":{},\"duration_ms\":{:.1}",
        sums.requests,
        sums.known,
        known(sums.bytes),
        known(sums.calls),
        sums.rss,
        sums.duration as f64 / 1_000.0
    )
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::input::Sink;

    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        tally.take(0, lines.as_bytes());
        tally.sort(By::Bytes);
        tally
    }

    const LOG: &str = "MEMORY method=POST path=/orders/1 malloc_bytes=1048576 malloc_calls=1000 rss_delta_bytes=8192 pid=1\n\
                       MEMORY method=GET path=/up malloc_bytes=512 malloc_calls=3 rss_delta_bytes=-4096 pid=2\n\
                       MEMORY method=GET path=/new rss_bytes=5 pid=2\nnoise\n";

    #[test]
    fn the_answer_the_table_and_what_is_not_in_it() {
        let expected = "\
POST /orders/:id allocated over 99% of all bytes: 1.0 MiB in 1 of 3 requests.
3 requests of 2 processes, 3 kinds:

  bytes     share  requests      p50      p95      max  calls  RSS growth  request
1.0 MiB  over 99%         1  1.0 MiB  1.0 MiB  1.0 MiB  1,000    +8.0 KiB  POST /orders/:id
  512 B  under 1%         1    512 B    512 B    512 B      3    -4.0 KiB  GET /up

1 more kind, 0 B

bytes and calls are of the request's own thread; RSS growth is of the whole process during the request
1 line without malloc_bytes: nothing was tracked then
1 other line skipped
";
        assert_eq!(text(&mut tally(LOG), By::Bytes, 2, ""), expected);
    }

    #[test]
    fn json_holds_the_same_and_is_json() {
        let text = json(&mut tally(LOG), By::Bytes, "bytes", 10, "a \"note\"");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["totals"]["malloc_bytes"], 1_049_088);
        assert_eq!(value["rows"][0]["request"], "POST /orders/:id");
        assert_eq!(value["rows"][1]["rss_delta_bytes"], -4_096);
        assert_eq!(value["rows"][2]["malloc_bytes_p95"], serde_json::Value::Null);
        assert_eq!((&value["kinds"], &value["lines"]["skipped"]), (&3.into(), &1.into()));
        assert!(
            text.ends_with("}\n")
                && value["answer"].as_str().unwrap().starts_with("POST /orders/:id allocated")
        );
    }
}
