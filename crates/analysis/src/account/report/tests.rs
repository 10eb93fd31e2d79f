use std::collections::HashMap;

use super::*;
use crate::advice::Advice;

const FIRST: &str = "rss 4096000\nother 96000\npagemap 1\nglibc 1\narena 0 1 3000000 500000 500000 3000000 9 400000\n\
                     stage 1\n";
const SECOND: &str = "type 3 900000 800000 T_STRING\nimemo 5 100 90 iseq\nsearched 1\nstage 2\n";

fn facts<'a>() -> Facts<'a> {
    Facts {
        signal: 0,
        pause_ms: 1.234,
        allocator: "glibc",
        own: &[],
        walks_heap: true,
        is_tracking: false,
        at_fork: None,
        names: &|_| None,
        top: &|_| None,
        advice: Advice::Methods,
    }
}

fn bytes_of(account: &Account) -> HashMap<&'static str, i64> {
    account.rows.iter().map(|row| (row.row.name(), row.bytes)).collect()
}

// The damage of one object ends the copy at the third stage, and threads that record at that instant the fourth one.
#[test]
fn reads_figures_of_any_stage() {
    let account = |text: &str| Counted::read(text.as_bytes()).account(&facts()).unwrap();
    let first = account(FIRST);
    let rows = bytes_of(&first);
    assert_eq!((rows["malloc_native"], rows["malloc_ruby_objects"]), (3_000_000, 0));
    assert_eq!((rows["malloc_free"], rows["unattributed"]), (1_000_000, 0));
    assert!(first.notes.concat().contains("Ruby's objects could not be asked for their sizes"));
    let rows = bytes_of(&account(&(FIRST.to_owned() + SECOND)));
    assert_eq!(
        (rows["malloc_native"], rows["malloc_ruby_objects"], rows["malloc_iseqs"]),
        (2_199_910, 800_000, 90)
    );
    assert!(
        Counted::read(b"rss 1\n").account(&facts()).unwrap_err().contains("ended: a limit of the process")
    );
}

#[test]
fn reads_its_own_values() {
    let account = Counted::read((FIRST.to_owned() + SECOND).as_bytes()).account(&facts()).unwrap();
    assert_eq!(account.pause_ms, 1.23);
    assert_eq!(Account::of_value(&account.to_value()), account);
    let none = Growth::between(&account, &account, Advice::Methods);
    assert_eq!(Growth::of_value(&none.to_value()), none);
    assert!(none.text().starts_with("RSS has not grown (0 B).\n\n        0 B  ruby_heap_live\n"));
}

#[test]
fn sums_up_mappings() {
    let smaps = b"5581-5582 r-xp 00000000 fd:00 12 /usr/bin/ruby\nSize: 8 kB\nRss:  8 kB\nShared_Clean: 4 kB\n\
                  Shared_Dirty: 2 kB\nffff-ffffff rw-p 00000000 00:00 0 \nRss: 100 kB\n1-2 rw-p 0 00:00 0 [stack]\nRss: 3 kB\n";
    let account = of_mappings(smaps).unwrap();
    let rows = bytes_of(&account);
    assert_eq!((account.rss, rows["mapped_files"], rows["anonymous"]), (111 << 10, 8 << 10, 100 << 10));
    assert_eq!((rows["thread_stacks"], account.private_bytes()), (3 << 10, Some(105 << 10)));
    assert!(of_mappings(b"").is_none());
}

#[test]
fn advice_names_either_methods_or_commands() {
    for &row in AccountRow::ALL {
        assert!(!grown(row, 1 << 20, None, Advice::Commands).contains("Memintro."), "{row:?}");
        assert!(!grown(row, 1 << 20, None, Advice::Methods).contains("PID"), "{row:?}");
    }
}
