//! Every kind with what it takes and what it refuses, and in which words.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::kinds::{count, divisor, fields, line, list, map, name, number, object, signed, text, word};
use super::*;

fn of(value: &Value, kind: &Kind) -> Result<Value, String> {
    read(value.to_string().as_bytes(), kind, "the answer", &Json).map_err(|wrong| wrong.to_string())
}

fn refusal(value: &Value, kind: &Kind) -> String {
    of(value, kind).unwrap_err()
}

#[test]
fn each_kind_takes_its_values_and_refuses_others() {
    let row = || {
        Kind::Row(fields! {
            first: word();
            second?: count();
        })
    };
    let cases = [
        (Kind::Flag, vec![json!(true)], vec![json!(1), json!("true")]),
        (
            count(),
            vec![json!(0), json!(u64::MAX)],
            vec![json!(-1), json!(1.0), json!(1e20), json!("7"), json!([])],
        ),
        (signed(), vec![json!(i64::MIN), json!(i64::MAX)], vec![json!(1_u64 << 63), json!(true)]),
        (line(), vec![json!(u32::MAX)], vec![json!(1_u64 << 32)]),
        (number(), vec![json!(0), json!(-1.5), json!(1e30)], vec![json!(1.1e30), json!("1"), json!({})]),
        (divisor(), vec![json!(0.0), json!(0.25), json!(-7)], vec![json!(1e-31), json!(1e31)]),
        (Kind::Counter, vec![json!(true), json!(5), json!(0.5)], vec![json!("5"), json!(1e31)]),
        (Kind::Text(3), vec![json!(""), json!("éàü")], vec![json!("éàüx"), json!(7)]),
        (
            name(),
            vec![json!("a"), json!({"base64": "/w=="})],
            vec![json!({"base64": "?"}), json!({"base64": "/w==", "a": 1})],
        ),
        (
            word(),
            vec![json!("full"), json!("~")],
            vec![json!(""), json!("a b"), json!("é"), json!("x".repeat(65))],
        ),
        (Kind::OneOf(&["a", "b"]), vec![json!("b")], vec![json!("c"), json!(0)]),
        (list(count(), 2), vec![json!([]), json!([1, 2])], vec![json!([1, 2, 3]), json!([null]), json!({})]),
        (
            row(),
            vec![json!(["a", null]), json!(["a", 1])],
            vec![json!(["a"]), json!(["a", 1, 2]), json!([null, 1])],
        ),
        (map(count()), vec![json!({"a": 1})], vec![json!({"a": null}), json!({"a": "b"}), json!([])]),
        (Kind::Plain, vec![json!({"a": [1, null, "b"]})], vec![json!({"a": [1e31]}), json!(1e-31)]),
    ];
    for (kind, taken, refused) in cases {
        for value in taken {
            assert_eq!(of(&value, &kind), Ok(value), "{kind:?}");
        }
        for value in refused {
            assert!(of(&value, &kind).is_err(), "{kind:?} took {value}");
        }
    }
}

#[test]
fn messages_name_the_place_the_value_and_what_is_allowed() {
    let kind = object! {
        a: object! { b?: list(count(), 2); };
        c?: text();
    };
    for (value, message) in [
        (json!([]), "the answer is a list; it must be an object"),
        (json!(null), "the answer is null; it must be an object"),
        (json!({}), "a is missing"),
        (json!({"a": null}), "a is missing"),
        (json!({"a": 7}), "a is 7; it must be an object"),
        (json!({"a": {"b": {}}}), "a.b is an object; it must be a list of at most 2"),
        (json!({"a": {"b": [1, 2, 3]}}), "a.b is a longer list; it must be a list of at most 2"),
        (
            json!({"a": {"b": [1, "\u{1b}"]}}),
            "a.b[1] is \"\\u{1b}\"; it must be an Integer from 0 to 18446744073709551615",
        ),
        (json!({"a": {}, "c": 1e300}), "c is 1e300; it must be a text of at most 4096 characters"),
    ] {
        assert_eq!(refusal(&value, &kind), message);
    }
    let long = refusal(&json!({"a": "x".repeat(1 << 20)}), &kind);
    assert!(
        long.starts_with("a is \"xxx") && long.ends_with("x...; it must be an object") && long.len() < 140
    );
    assert_eq!(of(&json!({"a": {"d": 1}, "e": [[]]}), &kind), Ok(json!({"a": {}})));
}

#[test]
fn text_that_is_no_json_is_said_to_be_none() {
    let kind = object! { a?: number(); };
    for (text, message) in [
        (&b"{"[..], "it is not JSON (EOF while parsing an object at line 1 column 1)"),
        (b"{} {}", "it is not JSON (trailing characters at line 1 column 4)"),
        (b"{\"a\":1e999}", "it is not JSON (a number is too great at line 1 column 10)"),
        (b"\xff", "it is not JSON (it is not UTF-8)"),
    ] {
        assert_eq!(read(text, &kind, "it", &Json).unwrap_err().to_string(), message);
    }
    let any = |text: &str, deepest| read(text.as_bytes(), &Kind::Any(deepest), "it", &Json);
    assert_eq!(any("[[1e300,null]]", 2), Ok(json!([[1e300, null]])));
    assert_eq!(any("[{\"a\":[]}]", 2).unwrap_err().to_string(), "it is nested too deeply");
    let deep = format!("{{\"b\":{}", "[".repeat(100_000));
    assert!(read(deep.as_bytes(), &kind, "it", &Json).unwrap_err().to_string().starts_with("it is not JSON"));
}

#[test]
fn a_header_is_an_acceptance_a_refusal_or_of_another_protocol() {
    let of = |line: &str| header(line.as_bytes(), 100, &Json);
    assert_eq!(
        of(r#"{"ok":true,"bytes":7}"#),
        Ok(Header::Accepted(json!({"ok": true, "bytes": 7}), Some(7)))
    );
    assert_eq!(
        of(r#"{"ok":true,"bytes":null}"#),
        Ok(Header::Accepted(json!({"ok": true, "bytes": null}), None))
    );
    let refused = json!({"ok": false, "error": "BusyError", "message": "busy"});
    assert_eq!(of(&refused.to_string()), Ok(Header::Refused(refused)));
    let wrong = |text: &str| Err(NoHeader::Wrong(text.to_owned()));
    assert_eq!(of(r#"{"ok":true,"bytes":101}"#), wrong("it has 101 bytes, and may have 100"));
    assert_eq!(of(r#"{"ok":false,"error":"E"}"#), wrong("message is missing"));
    for line in ["", "[1]", "7", "220 mail", "{}", r#"{"ok":1}"#] {
        assert_eq!(of(line), Err(NoHeader::Strange), "{line}");
    }
    assert_eq!(check_pid(7, 7), Ok(()));
    assert_eq!(check_pid(7, 8).unwrap_err().to_string(), "pid is 7; it must be 8, as its socket says");
}

#[test]
fn every_command_has_its_own_name_and_answers_an_object() {
    assert_eq!(COMMANDS.len(), 17);
    for one in COMMANDS.iter() {
        assert_eq!(command(one.name).unwrap().about, one.about);
        let mut names: Vec<_> = one.kind.fields().iter().map(|field| &field.name).collect();
        let count = names.len();
        assert!(count > 1, "{}", one.name);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{} has a field twice", one.name);
    }
    assert_eq!(COMMANDS.iter().filter(|command| command.is_brief()).count(), 7);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        for command in COMMANDS.iter() {
            prop_assert!(read(&bytes, &command.kind, "it", &Json).is_err());
        }
        let _ = head(&bytes);
        let _ = header(&bytes, 1, &Json);
    }

    /// What is taken once is taken again, and says the same.
    #[test]
    fn what_was_read_is_whole(mode in "[!-~]{1,64}", rss in any::<u64>(), name in ".{0,20}") {
        let kind = &command("info").unwrap().kind;
        let answer = json!({"pid": 1, "memintro": "0", "tracking": true, "mode": mode, "rss_bytes": rss, "name": name});
        let found = of(&answer, kind);
        prop_assert_eq!(found.as_ref(), Ok(&answer));
        prop_assert_eq!(of(&found.unwrap(), kind), Ok(answer));
    }
}
