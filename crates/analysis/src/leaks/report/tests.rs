use super::*;

fn group(verdict: Verdict, count: i64, bytes: i64) -> Group {
    Group { verdict, count, bytes, ..Group::default() }
}

fn leaked(site: Option<&str>, size: i64, count: i64, bytes: i64) -> Group {
    Group { site: site.map(str::to_owned), size: Some(size), ..group(Verdict::Leaked, count, bytes) }
}

fn leaks(groups: Vec<Group>, lost: (i64, i64)) -> Leaks {
    Leaks {
        lost: [lost, (0, 0), (0, 0)],
        scanned: (28_363, 4_980_599),
        allocator: "glibc".to_owned(),
        judges_chunks: true,
        mode: "full".to_owned(),
        copies: 2,
        searched: (5_000_000, 12.5),
        pause_ms: 3.25,
        is_collected: Some(true),
        groups,
        ..Leaks::default()
    }
}

fn judged(leaks: Leaks) -> Vec<String> {
    leaks.judged(&[], Advice::Methods, 47).verdict
}

#[test]
fn begins_with_what_leaks_most_and_says_what_to_do() {
    let rows = vec![
        Group { ages: Some((0, 3)), ..leaked(Some("app.rb:12"), 1024, 50_000, 51_200_000) },
        Group {
            first_words: Some((vec!["zero".to_owned(), "a number".to_owned()], "0x5500".to_owned())),
            ..leaked(None, 40, 2, 80)
        },
        Group {
            held_by: Some("a leaked block of 40 bytes".to_owned()),
            size: Some(24),
            ..group(Verdict::IndirectlyLeaked, 1, 24)
        },
        Group {
            site: Some("<b>:1".to_owned()),
            held_by: Some("a static, libx.so(cache)".to_owned()),
            ..group(Verdict::Anchored, 9, 900)
        },
        group(Verdict::FreeButKept, 3, 4096),
    ];
    let found = Leaks { lost: [(50_002, 51_200_080), (1, 24), (0, 0)], ..leaks(rows, (0, 0)) };
    assert_eq!(
        judged(found.clone()),
        [
            "50,000 blocks of 1,024 bytes (48.8 MiB) that nothing points to, from app.rb:12.",
            "2 further blocks (80 B) have nothing that points to them.",
            "Only leaked blocks point to 1 more block (24 B).",
            "Look at that line: what it allocates must be freed by the same library, or be kept where it can be. Work on and \
             ask again, to see whether it grows."
        ]
    );
    assert_eq!(
        found.summary(Some(20)),
        "leaked: 50,000 blocks of 1,024 bytes (48.8 MiB) from app.rb:12 aged 0 to 3 GCs\n\
         leaked: 2 blocks of 40 bytes (80 B); that at 0x5500 begins with zero, a number\n\
         indirectly leaked: 1 block of 24 bytes (24 B); held by a leaked block of 40 bytes\n\
         held: 9 blocks (900 B) from <b>:1; held by a static, libx.so(cache)\n\
         free but kept: 4.0 KiB"
    );
    assert_eq!(found.summary(Some(1)).lines().nth(1), Some("2 more blocks in 1 group, 80 B"));
    assert_eq!(Leaks::of_value(&found.to_value()), found);
}

#[test]
fn says_that_nothing_leaks_and_that_a_line_is_not_known() {
    let none = judged(leaks(vec![], (0, 0)));
    assert_eq!(none[0], "No block that nothing points to, among 28,363 blocks (4.7 MiB).");
    let lost = || leaks(vec![leaked(None, 4_000, 20, 80_000)], (20, 80_000));
    let off = || Leaks { mode: "off".to_owned(), ..lost() };
    let unknown = judged(off());
    assert!(unknown[0].ends_with("that nothing points to, from a line that is not known."));
    assert!(unknown[1].ends_with("Memintro.start, work, and Memintro.leaks again."));
    let asked = off().judged(&[], Advice::Commands, 47).verdict;
    assert!(asked[1].ends_with("to learn the lines: memintro leaks PID --track 60."));
    assert!(judged(lost())[1].starts_with("They were allocated before tracking began."));
    let little = judged(leaks(vec![leaked(Some("a.rb:1"), 40, 1, 40)], (1, 40)));
    assert!(little[0].starts_with("Little is leaked: 1 block (40 B) that nothing points to"));
}

#[test]
fn says_what_weighs_most_and_came_before_tracking() {
    let before = Owner {
        class_name: "X509::Store".to_owned(),
        objects: 241,
        silent_objects: 241,
        blocks: 3_000_000,
        bytes: 140 << 20,
        ..Owner::default()
    };
    let with = |groups, lost| Leaks { owners: vec![before.clone()], ..leaks(groups, lost) };
    let little = with(vec![leaked(None, 40, 1, 40)], (1, 40));
    let sentences = judged(little.clone());
    assert_eq!(
        sentences[0],
        "140.0 MiB are owned by 241 objects of class X509::Store, and their extension does not tell Ruby their size; less than \
         1.0 MiB of it came while it tracked."
    );
    assert!(sentences[1].ends_with(": Memintro.holders(\"X509::Store\")."));
    assert!(sentences[2].starts_with("Little is leaked: 1 block"));
    assert_eq!(sentences.len(), 3);
    let asked = little.judged(&[], Advice::Commands, 47).verdict;
    assert!(asked[1].ends_with(": memintro holders 47 --class X509::Store."));
    let much = judged(with(vec![leaked(Some("a.rb:1"), 1 << 20, 9, 9 << 20)], (9, 9 << 20)));
    assert!(!much.concat().contains("X509::Store"));
}

#[test]
fn says_what_may_be_lost_as_well() {
    let held = Group {
        site: Some("a.rb:1".to_owned()),
        held_by: Some(format!("{UNTRACKED} (1.4 MiB of it)")),
        ..group(Verdict::Anchored, 1_081, 6_486_000)
    };
    let found = leaks(vec![leaked(Some("a.rb:1"), 6_000, 819, 4_914_000), held], (819, 4_914_000));
    let other = Leaks { allocator: "jemalloc".to_owned(), ..found.clone() };
    assert!(judged(other)[1].starts_with("Up to 1,081 more blocks (6.2 MiB) may be lost as well"));
    assert!(!judged(found).concat().contains("may be lost"));
}

#[test]
fn names_no_next_command_for_a_core_file() {
    let last = |site, bytes| {
        let core = Leaks { copies: 0, ..leaks(vec![leaked(site, 40, 2, bytes)], (2, bytes)) };
        judged(core).pop().unwrap()
    };
    assert!(last(None, 80).starts_with("This core file does not say that line."));
    assert!(last(Some("a.rb:1"), 80).ends_with("as most programs lose at their start."));
    assert!(
        last(Some("a.rb:1"), 1 << 20)
            .ends_with("must be freed by the same library, or be kept where it can be.")
    );
}
