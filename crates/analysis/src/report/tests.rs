use memintro_abi::{BlockFigures, Estimated, Figures, ObjectFigures, SiteKind};
use proptest::prelude::*;

use super::{Process, Report};
use crate::figures;
use crate::formats::Choices;
use crate::sites::{Frame, Site, Sites};
use crate::text::{Options, stacks};

/// Records from numbers in sequence.
fn blocks(from: u64, estimated: bool) -> BlockFigures {
    let mut blocks = BlockFigures::default();
    let part = |value: u64| Estimated {
        value,
        variance: if estimated { value as f64 * 3.0 } else { 0.0 },
        skew: if estimated { value as f64 * 60.0 } else { 0.0 },
    };
    blocks.allocations = part(from + 900);
    blocks.frees = part(from / 2 + 100);
    blocks.total_bytes = part(from * 40 + 90_000);
    blocks.freed_bytes = part(from * 20 + 5_000);
    blocks.age_total = Estimated { skew: 0.0, ..part(from + 7) };
    blocks.max_lifespan = from % 31;
    blocks.marked_bytes = Estimated { value: from * 3, variance: part(from).variance, skew: 0.0 };
    blocks.estimated = u64::from(estimated);
    blocks
}

fn site(id: u32, kind: SiteKind, line: u32, from: u64, estimated: bool) -> Site {
    let mut record = super::read::rows::record(id as usize, kind, line);
    record.blocks = blocks(from, estimated);
    record.old_bytes = Estimated::exact(from);
    record.old_blocks = Estimated::exact(from / 9);
    if from.is_multiple_of(2) {
        record.objects = ObjectFigures {
            allocations: Estimated::exact(from + 5),
            frees: Estimated::exact(from / 3),
            total_bytes: Estimated::exact(from * 40),
            freed_bytes: Estimated::exact(from),
            marked_bytes: from / 7,
            ..ObjectFigures::default()
        };
    }
    Site { record, text: id, aged: None, callers: None, stack: None, knows_old: true }
}

fn report(rows: &[(u64, bool)], has_stacks: bool) -> Report {
    let kinds = [SiteKind::RUBY, SiteKind::NATIVE, SiteKind::PSEUDO];
    let mut sites = Sites::default();
    for (at, (from, estimated)) in rows.iter().enumerate() {
        let kind = kinds[at % 3];
        let line = if kind == SiteKind::RUBY { at as u32 + 1 } else { 0 };
        sites.list.push(site(at as u32, kind, line, *from, *estimated));
        sites.texts.push(format!("/app/é\u{202e}{at}.rb").into_bytes());
    }
    let stacks = has_stacks.then(|| {
        let mut stacks = sites.clone();
        stacks.frames = vec![
            Frame { path: b"/app/a.rb".to_vec(), line: 3, label: Some(b"a \"b\"".to_vec()) },
            Frame { path: b"/app/main.rb".to_vec(), line: 1, label: None },
        ];
        for (at, site) in
            stacks.list.iter_mut().enumerate().filter(|(_, site)| site.record.kind == SiteKind::RUBY)
        {
            stacks.stacks.push(if at % 2 == 0 { vec![0, 1] } else { vec![1] });
            site.stack = Some((stacks.stacks.len() - 1) as u32);
        }
        stacks
    });
    Report {
        process: Process {
            pid: Some(7),
            program: Some("app \u{1b}[31m".to_owned()),
            memintro: Some("0.1.0".to_owned()),
            tracking: Some(true),
            mode: Some("full".to_owned()),
            ..Process::default()
        },
        totals: Figures {
            allocated_bytes: Estimated::exact(9_000_000),
            frees: Estimated::exact(3),
            ..Figures::default()
        },
        sites,
        stacks,
        older_than: None,
        root: None,
    }
}

fn json(report: &Report) -> String {
    let mut text = Vec::new();
    report.write_json(&mut text, "").unwrap();
    String::from_utf8(text).unwrap()
}

fn text(report: &Report) -> String {
    let figure = figures::sortable("total_bytes").unwrap();
    let options = Options { by: "total_bytes", root: None, colour: false, is_command: true };
    report.text(&options, &stacks::heaviest(report, figure))
}

/// Numbers of floats as they are shown with nine digits.
fn rounded(text: &str) -> serde_json::Value {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) if number.is_f64() => {
                *value = format!("{:.6e}", number.as_f64().unwrap()).into();
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(round),
            serde_json::Value::Object(all) => all.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap();
    round(&mut value);
    value
}

/// Reads it, and writes it in all formats.
fn use_all(bytes: &[u8]) {
    if let Ok(mut read) = Report::read(bytes) {
        let sum = Report::sum(&[read.clone(), read.clone()]);
        for report in [&mut read, &mut sum.clone()] {
            report.sites.leave_out_beyond(2);
            for format in ["text", "json", "html", "folded", "speedscope"] {
                let choices = Choices {
                    figure: figures::sortable("growth").unwrap(),
                    most: Some(1),
                    root: None,
                    colour: false,
                    is_command: true,
                };
                report.write(format, choices, &mut Vec::new()).unwrap();
            }
        }
    }
    if let Ok(mut old) = Report::read_old(bytes, 1) {
        let figure = figures::sortable("live_bytes").unwrap();
        let choices = Choices { figure, most: None, root: None, colour: true, is_command: false };
        old.write("text", choices, &mut Vec::new()).unwrap();
    }
}

proptest! {
    #[test]
    fn reads_what_it_writes(rows in proptest::collection::vec((1..1_000_000_u64, any::<bool>()), 0..12), whole: bool) {
        let first = report(&rows, whole);
        let again = Report::read(json(&first).as_bytes()).unwrap();
        prop_assert_eq!(rounded(&json(&again)), rounded(&json(&first)));
        prop_assert_eq!(text(&again), text(&first));
    }

    #[test]
    fn no_bytes_can_harm(rows in proptest::collection::vec((1..1_000_u64, any::<bool>()), 0..4),
                         wrong in proptest::collection::vec((0..4_000_usize, any::<u8>()), 1..6), whole: bool) {
        let mut bytes = json(&report(&rows, whole)).into_bytes();
        for (at, byte) in wrong {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        use_all(&bytes);
    }

    #[test]
    fn no_numbers_can_harm(rows in proptest::collection::vec((1..1_000_u64, any::<bool>()), 1..4),
                           wrong in proptest::collection::vec((0..400_usize, 0..8_usize), 1..9), whole: bool) {
        const NUMBERS: [&str; 8] = ["0", "-1", "1e308", "-1e308", "18446744073709551615", "-9223372036854775808",
                                    "9223372036854775807", "1e-320"];
        let text = json(&report(&rows, whole));
        // Between numbers.
        let mut parts: Vec<String> = Vec::new();
        for character in text.chars() {
            let is_number = character.is_ascii_digit() || character == '.';
            match parts.last_mut() {
                Some(part) if part.starts_with(|one: char| one.is_ascii_digit()) == is_number => part.push(character),
                _ => parts.push(character.to_string()),
            }
        }
        let places: Vec<usize> =
            (0..parts.len()).filter(|at| parts[*at].starts_with(|one: char| one.is_ascii_digit())).collect();
        for (at, number) in wrong {
            parts[places[at % places.len()]] = NUMBERS[number].to_owned();
        }
        use_all(parts.concat().as_bytes());
    }

    #[test]
    fn sums_do_not_depend_on_the_order(one in proptest::collection::vec((1..1_000_u64, any::<bool>()), 0..6),
                                       other in proptest::collection::vec((1..1_000_u64, any::<bool>()), 0..6)) {
        let (one, other) = (report(&one, false), report(&other, false));
        let figure = figures::sortable("total_bytes").unwrap();
        let sorted = |mut sum: Report| {
            for site in &mut sum.sites.list {
                site.record.id = site.record.line;
            }
            sum.sites.sort(figure);
            rounded(&json(&sum))
        };
        prop_assert_eq!(sorted(Report::sum(&[one.clone(), other.clone()])), sorted(Report::sum(&[other, one])));
    }
}

#[test]
fn sums_what_is_the_same_line_and_the_same_stack() {
    let one = report(&[(10, false), (20, false)], true);
    let sum = Report::sum(&[one.clone(), one.clone(), report(&[(10, false)], false)]);
    let values = |sites: &Sites| {
        sites.list.iter().map(|site| site.record.blocks.allocations.value).collect::<Vec<_>>()
    };
    assert_eq!(values(&sum.sites), [3 * 910, 2 * 920]);
    // The third process has lines only, each a stack of its own.
    assert_eq!(values(sum.stacks.as_ref().unwrap()), [2 * 910, 2 * 920, 910]);
    assert_eq!(sum.process.processes, Some(3));
    assert_eq!(sum.totals.allocated_bytes.value, 27_000_000);
}

#[test]
fn writes_folded_stacks() {
    let mut out = Vec::new();
    report(&[(10, false), (20, false)], true)
        .write_folded(&mut out, figures::sortable("allocations").unwrap(), Some(b"/app"))
        .unwrap();
    let name = "/app/é\\xE2\\x80\\xAE1.rb";
    assert_eq!(String::from_utf8(out).unwrap(), format!("main.rb:1;a \"b\" (a.rb:3) 910\n{name} 920\n"));
}
