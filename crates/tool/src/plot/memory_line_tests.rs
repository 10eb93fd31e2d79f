use super::*;
use proptest::prelude::*;

const MB: f64 = 1_048_576.0;

fn figures(line: &str) -> Option<(u32, Vec<Option<f64>>)> {
    let record = read(line.as_bytes())?;
    Some((record.pid, record.figures.iter().map(|figure| figure.is_finite().then_some(*figure)).collect()))
}

#[test]
fn the_periodic_line_with_any_prefix() {
    let line = "MEMORY[42]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live_objects: 1.2 Million";
    let expected = (42, vec![Some(1123.4 * MB), Some(1_200_000.0), None, None]);
    for (prefix, later) in [
        ("", 0),
        ("I, [2026-01-01T12:00:00.1 #42]  INFO -- : ", 100_000),
        ("[web] [abc-1] ", 0),
        ("2026-01-01T12:00:00Z app[web.1]: ", 0),
    ] {
        let line = format!("{prefix}{line}");
        assert_eq!(figures(&line), Some(expected.clone()), "{line}");
        assert_eq!(read(line.as_bytes()).unwrap().stamp.unwrap().instant(0), 1_767_268_800_000_000 + later);
    }
}

#[test]
fn the_details_of_the_periodic_line_and_the_units_of_old_logs() {
    let line = "MEMORY[7]: time: 2026-01-01 12:00:00 +0000 rss: 1.5 GB, live_objects: 950 Thousand, \
                malloc_live: 12.5 MB, gc_count: 12, gc_time: 3.25 ms";
    assert_eq!(
        figures(line),
        Some((7, vec![Some(1536.0 * MB), Some(950_000.0), Some(12.5 * MB), Some(3.25)]))
    );
}

#[test]
fn the_request_line() {
    let line = r#"MEMORY method=GET path="/a b\" pid=9 rss_bytes=1" status=200 rss_bytes=104857600 process_gc_ms=1.5 pid=123 time=2026-01-01T12:00:00.123Z"#;
    assert_eq!(figures(line), Some((123, vec![Some(100.0 * MB), None, None, Some(1.5)])));
    assert_eq!(read(line.as_bytes()).unwrap().stamp.unwrap().wall, 1_767_268_800_123_000);
}

#[test]
fn the_loggers_time_and_process_serve_where_the_line_has_none() {
    let line = "I, [2026-01-01T12:00:00.250000 #77]  INFO -- : MEMORY method=GET rss_bytes=1048576";
    assert_eq!(figures(line), Some((77, vec![Some(MB), None, None, None])));
    assert_eq!(
        read(line.as_bytes()).unwrap().stamp,
        Some(Stamp { wall: 1_767_268_800_250_000, offset: None })
    );
}

#[test]
fn json_alone_after_the_word_or_as_a_message() {
    let object = r#"{"event":"MEMORY","path":"/\u00e9","rss_bytes":1048576,"malloc_live_bytes":2097152,"x":[{"pid":1}],"pid":5,"time":"2026-01-01T12:00:00.123Z"}"#;
    let expected = Some((5, vec![Some(MB), None, Some(2.0 * MB), None]));
    assert_eq!(figures(object), expected);
    assert_eq!(figures(&format!("I, [2026-01-01T12:00:00 #5]  INFO -- : MEMORY {object}")), expected);
    let wrapped = r#"{"time":"2026-01-01T12:00:00Z","message":"MEMORY method=GET rss_bytes=1048576 pid=5"}"#;
    assert_eq!(figures(wrapped), Some((5, vec![Some(MB), None, None, None])));
    assert_eq!(read(wrapped.as_bytes()).unwrap().stamp.unwrap().wall, 1_767_268_800_000_000);
}

#[test]
fn what_somebody_else_wrote_is_no_line_of_ours() {
    for line in [
        "",
        "MEMORY",
        "MEMORY is short",
        "MEMORY[",
        "MEMORY[x]: rss: 1 MB",
        "MEMORY method=GET pid=3",
        r#"Started GET "/?q=MEMORY pid=1 rss_bytes=99""#,
        r#"  Parameters: {"q"=>"MEMORY pid=1 rss_bytes=99"}"#,
        r#"{"path":"MEMORY pid=1 rss_bytes=99"}"#,
        r#"{"rss_bytes":"#,
    ] {
        assert_eq!(figures(line), None, "{line}");
    }
}

/// A slow and simple version of [`request`] to compare with.
fn naive(line: &str) -> Option<f64> {
    line.split(' ').find_map(|field| field.strip_prefix("rss_bytes=")).and_then(|text| text.parse().ok())
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_ending_of_a_true_line_is_read_without_a_panic(ending in "[ -~]{0,80}", cut in 0_usize..60) {
        let whole = format!("MEMORY[42]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live{ending}");
        let _ = read(&whole.as_bytes()[..cut.min(whole.len())]);
        let _ = read(whole.as_bytes());
        let _ = read(format!("MEMORY {ending}").as_bytes());
        let _ = read(format!("MEMORY {{{ending} \"rss_bytes\":").as_bytes());
    }

    #[test]
    fn the_fields_are_those_of_the_obvious_way(words in proptest::collection::vec("[a-z_]{1,8}(=[a-z0-9]{0,6})?", 0..6), rss in 0_u32..u32::MAX, at in 0_usize..6) {
        let mut words = words;
        words.insert(at.min(words.len()), format!("rss_bytes={rss}"));
        let line = format!("MEMORY {}", words.join(" "));
        prop_assert_eq!(read(line.as_bytes()).map(|record| record.figures[0]), naive(&line));
    }

    #[test]
    fn decimals_are_those_of_the_standard_library(figure in 0.0_f64..1e12) {
        let text = format!("{figure:.3}");
        let (read, used) = decimal(text.as_bytes()).unwrap();
        prop_assert_eq!(used, text.len());
        prop_assert!((read - text.parse::<f64>().unwrap()).abs() <= read.abs() * 1e-15);
    }
}

#[test]
fn whole_seconds_are_the_loggers_moment() {
    let at = |line: &str| read(line.as_bytes()).unwrap().stamp.unwrap().instant(0);
    let own = "MEMORY[42]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB";
    let noon = 1_767_268_800_000_000;
    assert_eq!(at(own), noon);
    assert_eq!(at(&format!("I, [2026-01-01T12:00:00.987654 #42]  INFO -- : {own}")), noon + 987_654);
    assert_eq!(at(&format!("I, [2026-01-01T13:00:01.000012 #42]  INFO -- : {own}")), noon + 1_000_012);
    // A line with another time, as in a log where a line is quoted in a later one.
    assert_eq!(at(&format!("I, [2026-01-01T12:00:30.5 #42]  INFO -- : {own}")), noon);
    let precise = "MEMORY rss_bytes=5 time=2026-01-01T12:00:00.123Z";
    assert_eq!(at(&format!("I, [2026-01-01T12:00:00.987654 #42]  INFO -- : {precise}")), noon + 123_000);
}

#[test]
fn a_line_says_that_nothing_was_tracked() {
    let line = "MEMORY[7]: time: 2026-01-01 12:00:00 +0000 rss: 1.0 MB, malloc_live: off, gc_count: 12, gc_time: 3.5 ms";
    assert_eq!(figures(line), Some((7, vec![Some(MB), None, None, Some(3.5)])));
    assert!(read(line.as_bytes()).unwrap().untracked);
    assert!(!read(line.replace("off", "1.0 MB").as_bytes()).unwrap().untracked);
}
