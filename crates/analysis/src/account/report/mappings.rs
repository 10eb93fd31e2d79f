//! An account of a process from outside: what the kernel says of its mappings.

use std::collections::HashMap;

use memintro_abi::AccountRow;

use super::details::file_list;
use super::{Account, Row};
use crate::text::units::{bytes, share};
use crate::value::members;

const NOTE: &str = "from the kernel's list of mappings alone: malloc, Ruby's heap and stacks of threads are all in \
                    `anonymous`. Only a process that listens (MEMINTRO_LISTEN=1) can tell them apart";

/// Resident bytes of mappings, and those of them in pages that other processes have as well.
#[derive(Clone, Copy, Default)]
struct Sum {
    rss: i64,
    shared: i64,
}

/// The account of the text of `/proc/PID/smaps`; `None` if no mapping is in it.
#[must_use]
pub fn of_mappings(smaps: &[u8]) -> Option<Account> {
    let sums = sums(smaps);
    if sums.is_empty() {
        return None;
    }
    let (all, shared) = (by_row(&sums, |sum| sum.rss), by_row(&sums, |sum| sum.shared));
    let files = sums.iter().filter(|(name, _)| name.starts_with(b"/"));
    let row = |&row: &AccountRow| Row {
        row,
        bytes: all(row),
        shared_bytes: Some(shared(row)),
        basis: "measured".to_owned(),
        details: match row {
            AccountRow::MappedFiles => {
                members([("files", file_list(files.clone().map(|(name, sum)| (*name, sum.rss))))])
            }
            AccountRow::Anonymous => {
                let heap = sums.iter().find(|(name, _)| *name == b"[heap]");
                members([("brk_bytes", heap.map_or(0, |(_, sum)| sum.rss).into())])
            }
            _ => members([]),
        },
    };
    let rss = sums.iter().map(|(_, sum)| sum.rss).sum();
    let verdict = format!(
        "{} of {} is anonymous memory, and {} is files. More is not known of a process that does not listen.",
        share(all(AccountRow::Anonymous), rss),
        bytes(rss),
        share(all(AccountRow::MappedFiles), rss)
    );
    Some(Account {
        rss,
        allocator: "unknown".to_owned(),
        pause_ms: 0.0,
        verdict: vec![verdict],
        notes: vec![NOTE.to_owned()],
        rows: AccountRow::ALL.iter().map(row).collect(),
    })
}

/// By the name of what is mapped; all that has none together.
fn sums(smaps: &[u8]) -> Vec<(&[u8], Sum)> {
    let mut sums: Vec<(&[u8], Sum)> = Vec::new();
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut name = &b""[..];
    for line in smaps.split(|&byte| byte == b'\n') {
        if let Some(mapped) = head(line) {
            name = mapped;
        } else if let Some((is_shared, bytes)) = figure(line) {
            let place = *places.entry(name).or_insert_with(|| {
                sums.push((name, Sum::default()));
                sums.len() - 1
            });
            if let Some((_, sum)) = sums.get_mut(place) {
                let part = if is_shared { &mut sum.shared } else { &mut sum.rss };
                *part = part.saturating_add(bytes);
            }
        }
    }
    sums
}

/// What is mapped, of the first line of a mapping.
fn head(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    let mut next = || {
        let begin = rest.iter().position(|&byte| byte != b' ')?;
        let (_, word) = rest.split_at_checked(begin)?;
        let end = word.iter().position(|&byte| byte == b' ').unwrap_or(word.len());
        let (word, more) = word.split_at_checked(end)?;
        rest = more;
        Some(word)
    };
    let (range, _flags, offset, _device, inode) = (next()?, next()?, next()?, next()?, next()?);
    let is_hex = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_hexdigit);
    let at = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = range.split_at_checked(at)?;
    let is_head = is_hex(start)
        && end.get(1..).is_some_and(is_hex)
        && is_hex(offset)
        && inode.iter().all(u8::is_ascii_digit);
    let name = rest.trim_ascii_start();
    // Shared memory without a name has an inode as well.
    let is_nameless = inode == b"0" && !name.starts_with(b"[");
    is_head.then_some(if is_nameless { b"" } else { name })
}

/// Whether it is of shared pages, and the bytes.
fn figure(line: &[u8]) -> Option<(bool, i64)> {
    let keys = [("Rss:", false), ("Shared_Clean:", true), ("Shared_Dirty:", true)];
    keys.into_iter().find_map(|(key, is_shared)| {
        let figure = line.strip_prefix(key.as_bytes())?.strip_suffix(b" kB")?;
        let number: i64 = std::str::from_utf8(figure).ok()?.trim_start().parse().ok()?;
        Some((is_shared, number.saturating_mul(1024)))
    })
}

fn by_row(sums: &[(&[u8], Sum)], bytes: fn(&Sum) -> i64) -> impl Fn(AccountRow) -> i64 {
    let of = |is_wanted: &dyn Fn(&[u8]) -> bool| {
        sums.iter().filter(|(name, _)| is_wanted(name)).map(|(_, sum)| bytes(sum)).sum::<i64>()
    };
    let (all, files, stack) =
        (of(&|_| true), of(&|name| name.starts_with(b"/")), of(&|name| name == b"[stack]"));
    move |row| match row {
        AccountRow::ThreadStacks => stack,
        AccountRow::MappedFiles => files,
        AccountRow::Anonymous => all - files - stack,
        _ => 0,
    }
}
