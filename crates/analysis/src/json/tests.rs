//! The form of the JSON, byte by byte where that matters and as values elsewhere.

use memintro_abi::{BlockFigures, Estimated, ObjectFigures, SiteRecord};
use serde_json::{Value, json};

use super::*;
use crate::sites::Aged;

fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("a Vec takes all");
    String::from_utf8(out).expect("UTF-8")
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn record(kind: SiteKind, line: u32) -> SiteRecord {
    SiteRecord {
        id: 3,
        kind,
        path: std::ptr::null(),
        path_len: 0,
        line,
        address: 0,
        module_offset: 0,
        module_build: 0,
        blocks: BlockFigures {
            allocations: Estimated::exact(10),
            frees: Estimated::exact(4),
            total_bytes: Estimated::exact(1_000),
            freed_bytes: Estimated::exact(400),
            age_total: Estimated::exact(6),
            max_lifespan: 5,
            marked_bytes: Estimated::exact(100),
            ..BlockFigures::default()
        },
        old_blocks: Estimated::exact(2),
        old_bytes: Estimated::exact(70),
        objects: ObjectFigures::default(),
        stack: 0,
    }
}

fn site(record: SiteRecord, text: u32) -> Site {
    Site { record, text, aged: None, callers: None, stack: None, knows_old: true }
}

#[test]
fn a_site_has_the_figures_of_a_call_site_in_their_order() {
    let found = Sites {
        list: vec![site(record(SiteKind::RUBY, 12), 0), site(record(SiteKind::PSEUDO, 0), 1)],
        texts: vec![b"/app/a \"b\".rb".to_vec(), b"(gc)".to_vec()],
        ..Sites::default()
    };
    let text = written(|out| sites(out, &found, Bytes::Shown));
    assert!(text.starts_with(
        r#"[{"name":"/app/a \"b\".rb:12","path":"/app/a \"b\".rb","lineno":12,"kind":"ruby","allocations":10,"frees":4,"#
    ));
    let rows = parsed(&text);
    assert_eq!(rows[1]["name"], json!("(gc)"));
    assert_eq!((&rows[1]["path"], &rows[1]["lineno"]), (&Value::Null, &Value::Null));
    let figures = ["live_bytes", "live_blocks", "growth", "mean_lifespan", "max_lifespan", "age_total"];
    assert_eq!(
        figures.map(|name| rows[0][name].clone()),
        [json!(600), json!(6), json!(500), json!(1.5), json!(5), json!(6)]
    );
    assert_eq!(rows[0].get("estimated"), None);
}

#[test]
fn an_estimate_has_its_standard_errors_and_old_blocks_alone_count_as_live() {
    let mut sampled = record(SiteKind::NATIVE, 0);
    let doubted = |of: Estimated, variance: f64, skew: f64| Estimated { variance, skew, ..of };
    let of = sampled.blocks;
    sampled.blocks = BlockFigures {
        allocations: doubted(of.allocations, 16.0, 48.0),
        frees: doubted(of.frees, 4.0, 4.0),
        total_bytes: doubted(of.total_bytes, 900.0, 3_600.0),
        freed_bytes: doubted(of.freed_bytes, 1_000.0, 1_000.0),
        marked_bytes: doubted(of.marked_bytes, 25.0, 0.0),
        age_total: doubted(of.age_total, 9.0, 0.0),
        age_covariance: 0.5,
        estimated: 1,
        ..of
    };
    sampled.old_bytes.variance = 49.0;
    let aged = Aged {
        bytes: Estimated { value: 70, variance: 49.0, skew: 490.0 },
        blocks: Estimated { value: 2, variance: 1.0, skew: 5.0 },
        ..Aged::default()
    };
    let list = vec![site(sampled, 0), Site { aged: Some(aged), ..site(sampled, 0) }];
    let found = Sites { list, texts: vec![b"libz.so(deflate+0x1)".to_vec()], ..Sites::default() };
    let rows = parsed(&written(|out| sites(out, &found, Bytes::Shown)));
    let close = |row: usize, name: &str, squared: f64| {
        let error = rows[row][format!("{name}_standard_error")].as_f64().expect("a number");
        assert!((error - squared.sqrt()).abs() < 1e-12, "{name}: {error}");
    };
    assert_eq!(rows[0]["estimated"], json!(true));
    // The variance, and the square of what one sample stands for: 3 blocks, or 4 bytes.
    close(0, "allocations", 16.0 + 9.0);
    close(0, "frees", 4.0 + 9.0);
    // What is left of two large numbers may lie below zero.
    close(0, "live_bytes", 16.0);
    close(0, "growth", 25.0 + 16.0);
    close(0, "mean_lifespan", 16.5 / 16.0);
    close(0, "old_bytes", 49.0 + 16.0);
    assert_eq!(rows[0]["allocations_per_sample"], json!(3.0));
    // 10, and 2 * 1.6 or 2 * 3.6 further, and two of the errors that are there: the root of 16 + 1.6^2, and of 16 + 3.6^2.
    assert_eq!(rows[0]["allocations_interval"], json!([4, 28]));
    // There is a mark: to both sides alike.
    assert_eq!(rows[0]["growth_interval"], json!([487, 513]));
    assert_eq!([rows[1]["live_bytes"].clone(), rows[1]["live_blocks"].clone()], [json!(70), json!(2)]);
    close(1, "live_bytes", 49.0 + 100.0);
    close(1, "live_blocks", 1.0 + 25.0);
    assert_eq!(rows[1]["growth"], json!(500));
    assert_eq!(rows[1].get("old_bytes"), None);
}

#[test]
fn names_that_are_not_utf8_are_kept_or_shown() {
    let found = Sites {
        list: vec![site(record(SiteKind::RUBY, 3), 0)],
        texts: vec![b"/app/b\xFFd\xE9.rb".to_vec()],
        ..Sites::default()
    };
    let shown = parsed(&written(|out| sites(out, &found, Bytes::Shown)));
    assert_eq!(shown[0]["name"], json!("/app/b\\xFFd\\xE9.rb:3"));
    let exact = parsed(&written(|out| sites(out, &found, Bytes::Exact)));
    assert_eq!(exact[0]["path"], json!({ "base64": "L2FwcC9i/2TpLnJi" }));
    assert_eq!(
        ["", "f", "fo", "foo", "foob"].map(|text| STANDARD.encode(text.as_bytes())),
        ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
    );
}

#[test]
fn a_heap_has_a_list_for_each_part_and_null_for_what_was_not_asked_for() {
    let row = |name: &[u8], count, bytes| Row { name: name.to_vec(), count, bytes };
    let place = |path, line, count, bytes| Place { path, line, count, bytes };
    let pool = Pool {
        slot_size: 40,
        pages: 3,
        slots: 1_200,
        live: 900,
        sparse_pages: 1,
        sparse_live: 5,
        empty_pages: 1,
    };
    let found = Heap {
        types: Some(vec![row(b"T_STRING", 9, None)]),
        classes: None,
        internals: Some((0..9).map(|i| row(b"imemo_ment", i, Some(i * 40))).collect()),
        iseqs: Some(Iseqs {
            texts: vec![b"(unknown)".to_vec(), b"/app/\xE9.rb".to_vec()],
            paths: vec![place(1, None, 3, 300)],
            locations: vec![place(1, Some(-1), 2, 200), place(1, Some(0), 1, 100)],
        }),
        occupancy: Some(Occupancy {
            pools: vec![pool],
            holders: vec![Holder { name: b"String".to_vec(), count: 5, pages: 1 }],
        }),
    };
    let text = written(|out| heap(out, &found, 2));
    assert_eq!(text.matches("imemo_ment").count(), 9);
    // A long list has a line for each row.
    assert_eq!(text.lines().count(), 1 + 5 + 8);
    let value = parsed(&format!("{{\"first\":0{text}}}"));
    assert_eq!(value["types"], json!([{ "name": "T_STRING", "count": 9, "bytes": null }]));
    assert_eq!(value["classes"], Value::Null);
    assert_eq!(value["iseqs"]["count"], json!(3));
    assert_eq!(value["iseqs"]["bytes"], json!(300));
    assert_eq!(value["iseqs"]["locations"][0]["name"], json!({ "base64": "L2FwcC/pLnJiOi0x" }));
    assert_eq!(
        value["occupancy"],
        json!({ "pages": 3, "slots": 1_200, "live_slots": 900, "free_slots": 300, "sparse_pages": 1,
                "sparse_live_slots": 5, "empty_pages": 3,
                "pools": [{ "slot_size": 40, "pages": 3, "slots": 1_200, "live_slots": 900, "free_slots": 300,
                            "sparse_pages": 1, "sparse_live_slots": 5 }],
                "holders": [{ "name": "String", "count": 5, "pages": 1 }] })
    );
    let nothing = written(|out| heap(out, &Heap::default(), 0));
    assert_eq!(
        nothing.replace('\n', ""),
        r#","types":null,"classes":null,"internals":null,"iseqs":null,"occupancy":null"#
    );
}
