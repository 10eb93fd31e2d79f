//! The fast parser against the slow one, line by line.

use super::*;
use crate::read::{lines::Lines, source::Block};
use proptest::prelude::*;
use proptest::sample::select;

/// Fields as Ruby and memintro write them, and fields that neither writes.
const FIELDS: [&str; 74] = [
    r#""class":"0x7fb8222aa440""#,
    r#""class":"0x7FB8222AA440""#,
    r#""class":"0x""#,
    r#""class":3"#,
    r#""frozen":true"#,
    r#""embedded":true"#,
    r#""fstring":true"#,
    r#""shared":true"#,
    r#""bytesize":0"#,
    r#""bytesize":1234567"#,
    r#""bytesize":123456789"#,
    r#""bytesize":true"#,
    r#""capacity":23"#,
    r#""value":"""#,
    r#""value":"object 1""#,
    r#""value":"a \"text\" with \\ and ] and } in it, longer than sixteen bytes""#,
    r#""value":"\\""#,
    r#""value":1.5"#,
    r#""value_hash":"0123456789abcdef""#,
    r#""value_hush":"0123456789abcdef""#,
    r#""encoding":"UTF-8""#,
    r#""encoding":"US-ASCII""#,
    r#""coderange":"7bit""#,
    r#""ivars":3"#,
    r#""length":12"#,
    r#""size":1"#,
    r#""default":"0x1""#,
    r#""references":["0x7fb8222aa440"]"#,
    r#""references":["0x7fb8222aa440", "0x10", "0x7fb8222aa440"]"#,
    r#""references":["0x7fb8222aa440","0x7fb8222aa440"]"#,
    r#""references":["0x7fb8222aa440", "0x7fb8]22aa440"]"#,
    r#""references":["0x7fb8222aa440", "]xxxxxxxxxxxxx"]"#,
    r#""references":["0x7fb8222aa440", ["x"], "0x7fb8222aa440"]"#,
    r#""references":[]"#,
    r#""references":[[]]"#,
    r#""references":"x""#,
    r#""references":3"#,
    r#""edges":["@a", "[0]"]"#,
    r#""edges":["@a", null]"#,
    r#""edges":["[\"]\"]", "x"]"#,
    r#""edges":[]"#,
    r#""edges":"x""#,
    r#""file":"a.rb""#,
    r#""file":"/a/path/that/is/longer/than/forty-eight/bytes/so/that/it/is/far.rb""#,
    r#""file":3"#,
    r#""file":true"#,
    r#""line":7"#,
    r#""line":"7""#,
    r#""line":true"#,
    r#""method":"new""#,
    r#""generation":35"#,
    r#""generation":1.5"#,
    r#""generotion":35"#,
    r#""memsize":40"#,
    r#""memsize":4e3"#,
    r#""memsize":null"#,
    r#""memsize":-1"#,
    r#""flags":{"wb_protected":true}"#,
    r#""flags":{"wb_protected":true, "old":true}"#,
    r#""flags":{}"#,
    r#""flags":{"a}":true}"#,
    r#""flags":{"a":{"b":true}}"#,
    r#""flags":3"#,
    r#""imemo_type":"ment""#,
    r#""imemo_typo":"ment""#,
    r#""struct":"io""#,
    r#""name":"A""#,
    r#""superclass":"0x10""#,
    r#""singleton":true"#,
    r#""singleton":1"#,
    r#""root":"vm""#,
    r#""type":"STRING""#,
    r#""type":"ROOTLESSNESS""#,
    r#""x":[1, {"y":[]}]"#,
];

const HEADS: [&str; 9] = [
    r#"{"address":"0x7fb8222a0000", "type":"STRING""#,
    r#"{"address":"0x7fb8222a0028", "type":"ARRAY""#,
    r#"{"address":"0x7fb8222a0050", "type":"OBJECT", "class":"0x7fb8222aa440", "ivars":3"#,
    r#"{"address":"0x7fb8222a0050", "type":"HASH", "class":"0x7fb8222aa440""#,
    r#"{"address":"0x7fb8222a0050", "type":"SYMBOL", "shape_id":4, "slot_size":40, "class":"0x7fb8222aa440""#,
    r#"{"address":"0x8", "type":"IMEMO", "imemo_type":"ment""#,
    r#"{"type":"ROOT", "root":"end", "objects":12"#,
    r#"{"type":"SHAPE""#,
    r#"  {"address" : "0x8""#,
];

const IN_BAND_RECORDS: [&str; 8] = [
    r#", "file":"a.rb", "line":1, "method":"new", "generation":2, "memsize":40, "flags":{"wb_protected":true}"#,
    r#", "file":"a.rb", "line":1, "method":"new", "generation":3, "memsize":40, "flags":{"wb_protected":true}"#,
    r#", "file":"b.rb", "line":1, "generation":2, "memsize":80"#,
    r#", "file":"b.rb", "line":1, "generation":2, "memsize":80, "x":1"#,
    r#", "generation":2, "memsize":40"#,
    r#", "memsize":40, "flags":{"wb_protected":true, "old":true}"#,
    r#", "memsize":168, "flags":{"wb_protected":true, "old":true}"#,
    "",
];

fn line() -> impl Strategy<Value = String> {
    let field = (select(&[", ", ",", " , ", "  "][..]), select(&FIELDS[..]));
    let fields = proptest::collection::vec(field, 0..5);
    let ends = ["}", "}", "}", "} ", "},", ""];
    (select(&HEADS[..]), fields, select(&IN_BAND_RECORDS[..]), select(ends.to_vec())).prop_map(
        |(head, fields, tail, end)| {
            let fields: String = fields.into_iter().flat_map(|(comma, field)| [comma, field]).collect();
            [head, &fields, tail, end].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// For any line after any other lines, the fast parser agrees with the slow one, or leaves the line to
    /// it.
    #[test]
    fn both_parsers_agree(lines in proptest::collection::vec(line(), 1..12), wants in any::<[bool; 4]>()) {
        let [references, edges, values, sites] = wants;
        let wants = Wants { references, edges, values, sites };
        // Behind the last line there is enough for reading ahead.
        let text = lines.join("\n") + "\n                ";
        let (mut recent, mut from, mut line) = (Recent::default(), 0, Line::default());
        for slow in &lines {
            if let Some(to) = parse(text.as_bytes(), from, wants, &mut recent, &mut line) {
                prop_assert_eq!(to, from + slow.len());
                let truth = Line::parse(slow.as_bytes(), wants);
                prop_assert_eq!(Ok(format!("{line:?}")), truth.map(|truth| format!("{truth:?}")), "{}", slow);
            }
            from += slow.len() + 1;
        }
        let block = Block { number: 0, offset: 0, bytes: text.into_bytes() };
        let (mut all, mut count) = (Lines::default(), 0);
        all.each(&block, wants, |_| { count += 1; Ok(()) });
        prop_assert_eq!(count + all.bad_lines as usize, lines.len());
    }
}

#[test]
fn lines_of_ruby_and_memintro_are_read_fast() {
    for dump in ["ruby.ndjson", "memintro.ndjson"] {
        let path = format!("{}/fuzz/corpus/heap_file/{dump}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read(path).unwrap();
        let wants = Wants { references: true, edges: true, values: true, sites: true };
        let (mut recent, mut line, mut from, mut fast, mut count) =
            (Recent::default(), Line::default(), 0, 0, 0);
        for slow in text.split_inclusive(|byte| *byte == b'\n') {
            fast += u32::from(parse(&text, from, wants, &mut recent, &mut line).is_some());
            count += 1;
            from += slow.len();
        }
        assert!(fast * 100 >= count * 95, "{dump}: {fast} of {count}");
    }
}
