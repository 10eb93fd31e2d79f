//! The finer parts of each row.

use std::collections::HashMap;

use memintro_abi::AccountRow;

use super::reading::{FOUND, Names, Reading, SAID, is_own};
use crate::copy_lines::{CopyLines, Row};
use crate::json::shown;
use crate::value::{Value, members};

/// Most rows of each list.
const MOST: usize = 20;
/// Least bytes of the last class of free pieces in bins, which has no end.
const LARGEST_CLASS: i64 = 1 << 20;
const IMEMO: &str = "imemo_";

/// Pages of Ruby's heap that are this process's own, where some memory is shared.
pub(super) fn own_pages(shared: &CopyLines) -> Value {
    let Some(row) = shared.all("own_pages").first() else { return Value::Null };
    members([
        ("heap_pages", row.number(0).into()),
        ("pages", row.number(1).into()),
        ("with_free_slots", row.number(2).into()),
        ("old_objects", row.number(3).into()),
        ("young_objects", row.number(4).into()),
    ])
}

/// The greatest ones first.
fn most<T>(mut list: Vec<T>, bytes: impl Fn(&T) -> i64) -> Vec<T> {
    list.sort_by_key(|item| std::cmp::Reverse(bytes(item)));
    list.truncate(MOST);
    list
}

/// A kind of objects: its name, how many there are, and their bytes.
struct Kind {
    name: String,
    count: i64,
    bytes: i64,
}

impl Kind {
    fn to_value(&self) -> Value {
        members([
            ("name", self.name.as_str().into()),
            ("count", self.count.into()),
            ("bytes", self.bytes.into()),
        ])
    }
}

fn site((name, bytes, blocks): (&[u8], i64, i64)) -> Value {
    members([("name", shown(name).into()), ("live_bytes", bytes.into()), ("live_blocks", blocks.into())])
}

impl Reading<'_> {
    /// The names of the call sites that the lines tell of, while something is tracked.
    pub(super) fn site_names(&self) -> Option<Names> {
        if !self.facts.is_tracking || !self.is_listed() {
            return None;
        }
        let mut ids: Vec<u32> = self.lines.all("site").iter().map(|row| row.label(1) as u32).collect();
        ids.sort_unstable();
        ids.dedup();
        (self.facts.names)(&ids)
    }

    pub(super) fn details(&self, row: AccountRow, own_pages: &Value, names: Option<&Names>) -> Value {
        match row {
            AccountRow::RubyHeapLive => self.of_live_slots(own_pages),
            AccountRow::RubyHeapFree => members([
                ("empty_pages", self.sum("heap_empty").into()),
                ("empty_bytes", self.lines.sum_at("heap_empty", 1).into()),
            ]),
            AccountRow::MallocRubyObjects => members([
                ("types", self.kinds("type").iter().map(Kind::to_value).collect::<Vec<_>>().into()),
                ("call_sites", self.call_sites(2, names)),
            ]),
            AccountRow::MallocIseqs => {
                let iseqs = self.internal().filter(|kind| kind.name == "iseq").map(|kind| kind.count);
                members([("iseqs", iseqs.sum::<i64>().into()), ("call_sites", self.call_sites(3, names))])
            }
            AccountRow::MallocInternal => {
                let kinds = self.internal().filter(|kind| kind.name != "iseq");
                members([
                    ("kinds", kinds.map(|kind| kind.to_value()).collect::<Vec<_>>().into()),
                    ("call_sites", self.call_sites(4, names)),
                ])
            }
            AccountRow::MallocNative => members([
                ("in_use_bytes", self.used.into()),
                ("mmapped_blocks", self.sum("mmapped").into()),
                ("mmapped_bytes", self.lines.sum_at("mmapped", 2).into()),
                ("call_sites", self.call_sites(1, names)),
                ("call_sites_of", if self.is_listed() { "malloc_native" } else { "all rows" }.into()),
                ("free_told_apart", self.is_inside_known().into()),
                ("reached", self.reached()),
            ]),
            AccountRow::MallocFree => self.of_free(),
            AccountRow::ThreadStacks => self.stacks(),
            AccountRow::MappedFiles => {
                let files = self.files().filter(|row| !is_own(&row.text));
                members([("files", file_list(files.map(|row| (row.text.as_slice(), row.number(0)))))])
            }
            AccountRow::Anonymous => {
                members([("code_bytes", self.sum("code").into()), ("zero_bytes", self.sum("zero").into())])
            }
            AccountRow::Memintro => members([
                ("library_bytes", self.own_files.into()),
                ("code_bytes", self.own_code.into()),
                ("table_bytes", self.sum("own").into()),
            ]),
            AccountRow::Unattributed => members([]),
        }
    }

    fn of_live_slots(&self, own_pages: &Value) -> Value {
        let mut details = members([("pages", self.sum("heap_pages").into())]);
        if !own_pages.is_null() {
            details.put("own_pages", own_pages.clone());
        }
        if let Some((live, old)) = self.facts.at_fork {
            details.put("at_fork", members([("live_objects", live.into()), ("old_objects", old.into())]));
        }
        details
    }

    fn of_free(&self) -> Value {
        let sum_at = |word, place| Value::from(self.lines.sum_at(word, place));
        let arenas = self.lines.all("arena");
        let largest = most(arenas.iter().collect(), |row: &&Row| row.number(3).saturating_add(row.number(4)));
        let arena = |row: &&Row| {
            members([
                ("arena", row.number(0).into()),
                ("heaps", row.number(1).into()),
                ("used_bytes", row.number(2).into()),
                ("free_bytes", row.number(3).into()),
                ("top_bytes", row.number(4).into()),
                ("free_pieces", row.number(6).into()),
            ])
        };
        let said = self.facts.own.iter().map(|(name, bytes)| ((*name).to_owned(), (*bytes).into()));
        let class = |least: i64| {
            let end = if least < LARGEST_CLASS { Value::from(least * 2 - 1) } else { Value::Null };
            vec![("least_bytes", least.into()), ("most_bytes", end)]
        };
        let piece = |size: i64| vec![("piece_bytes", Value::from(size))];
        members([
            ("arenas", arenas.len().into()),
            ("allocator", self.facts.allocator.into()),
            ("bins_bytes", sum_at("arena", 3)),
            ("top_bytes", sum_at("arena", 4)),
            ("trimmable_bytes", self.is_glibc().then(|| self.lines.sum_at("arena", 7)).into()),
            ("tcache_bytes", sum_at("tcache", 2)),
            ("tcaches", sum_at("tcache", 0)),
            ("fast_bins_bytes", sum_at("fast", 1)),
            ("inside_known", self.is_inside_known().into()),
            ("largest_arenas", largest.iter().map(arena).collect::<Vec<_>>().into()),
            ("allocator_says", Value::Members(said.collect())),
            ("bins_pieces", sum_at("arena", 6)),
            ("tcache_pieces", sum_at("tcache", 1)),
            ("fast_bins_pieces", sum_at("fast", 0)),
            ("bins", self.by_size("bin", class)),
            ("tcache", self.by_size("tcache_bin", piece)),
            ("fast_bins", self.by_size("fast_bin", piece)),
        ])
    }

    /// The pieces of each size that glibc's lists hold, the greatest sum first.
    fn by_size(&self, word: &str, size: impl Fn(i64) -> Vec<(&'static str, Value)>) -> Value {
        let rows = most(self.lines.all(word).iter().collect(), |row: &&Row| row.number(2));
        let piece = |row: &&Row| {
            let mut all = size(row.number(0));
            all.extend([("pieces", row.number(1).into()), ("bytes", row.number(2).into())]);
            Value::Members(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        rows.iter().map(piece).collect::<Vec<_>>().into()
    }

    /// Which lines asked for the blocks of a row, by its number; `Null` while nothing is tracked. Where blocks have no known
    /// owner, `malloc_native` has those of all blocks, and the others have none.
    fn call_sites(&self, row: u64, names: Option<&Names>) -> Value {
        if !self.facts.is_tracking {
            return Value::Null;
        }
        if !self.is_listed() {
            let top = if row == 1 { (self.facts.top)(MOST) } else { None };
            let shown = |top: Vec<super::Site>| {
                top.iter().map(|(name, bytes, blocks)| site((name, *bytes, *blocks))).collect::<Vec<_>>()
            };
            return top.map(shown).into();
        }
        let Some(names) = names else { return Value::Null };
        let of_row = self.lines.all("site").iter().filter(|found| found.label(0) == row);
        let named = of_row.map(|found| {
            let name = names.get(&(found.label(1) as u32)).map_or(&b"(unknown)"[..], Vec::as_slice);
            site((name, found.number(2), found.number(3)))
        });
        named.collect::<Vec<_>>().into()
    }

    /// Kinds of stacks. Of fibers, how many have one: Ruby keeps stacks of fibers that have ended.
    fn stacks(&self) -> Value {
        let mut found: Vec<(String, Value)> = Vec::new();
        for row in self.lines.all("stack") {
            let of = members([("count", row.number(0).into()), ("bytes", row.number(1).into())]);
            let kind = shown(&row.text);
            match found.iter_mut().find(|(name, _)| *name == kind) {
                Some((_, value)) => *value = of,
                None => found.push((kind, of)),
            }
        }
        let fibers = found.iter_mut().find(|(kind, _)| kind == "fibers");
        if let (Some((_, fibers)), Some(row)) = (fibers, self.lines.all("fibers").first()) {
            fibers.put("live", row.number(0));
            fibers.put("of_enumerators", row.number(1));
        }
        Value::Members(found)
    }

    /// What objects lead to that their extensions do not tell Ruby of.
    fn reached(&self) -> Value {
        let Some(all) = self.lines.all("reached_all").first() else { return Value::Null };
        let class = |row: &Row| {
            members([
                ("name", shown(&row.text).into()),
                ("objects", row.number(0).into()),
                ("blocks", row.number(1).into()),
                ("bytes", row.number(2).into()),
            ])
        };
        let classes: Vec<Value> = self.lines.all("reached").iter().map(class).collect();
        members([
            ("objects", all.number(0).into()),
            ("blocks", all.number(1).into()),
            ("bytes", all.number(2).into()),
            ("classes", classes.into()),
        ])
    }

    fn kinds(&self, word: &str) -> Vec<Kind> {
        let kind = |row: &Row| Kind {
            name: shown(&row.text),
            count: row.number(0),
            bytes: if self.is_searched() { row.number(FOUND) } else { self.part(row.number(SAID)) },
        };
        most(self.lines.all(word).iter().map(kind).collect(), |kind| kind.bytes)
    }

    /// Kinds of Ruby's own objects.
    fn internal(&self) -> impl Iterator<Item = Kind> {
        self.kinds("imemo")
            .into_iter()
            .map(|kind| Kind { name: kind.name.strip_prefix(IMEMO).unwrap_or(&kind.name).to_owned(), ..kind })
    }
}

/// Files with their bytes, those with most first.
pub(super) fn file_list<'a>(files: impl Iterator<Item = (&'a [u8], i64)>) -> Value {
    let mut sums: Vec<(&[u8], i64)> = Vec::new();
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (path, bytes) in files {
        let place = *places.entry(path).or_insert_with(|| {
            sums.push((path, 0));
            sums.len() - 1
        });
        if let Some((_, sum)) = sums.get_mut(place) {
            *sum = sum.saturating_add(bytes);
        }
    }
    let file =
        |(path, bytes): &(&[u8], i64)| members([("name", shown(path).into()), ("bytes", (*bytes).into())]);
    most(sums, |(_, bytes)| *bytes).iter().map(file).collect::<Vec<_>>().into()
}
