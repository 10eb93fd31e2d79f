//! Who holds all objects of a class: their shortest ways to a root, grouped by class and edge.

use crate::also::other_ways;
use crate::answer::{Answer, commas, counted, human, of_human, percent};
use crate::graph::Graph;
use crate::intern::Map;
use crate::keys::{Keys, NO_KEY};
use crate::lasting::Lasting;
use crate::lists::sampled;
use crate::options::Options;
use crate::reach::Bits;
use crate::read::line::Type;
use crate::select::{Chosen, described, select};
use crate::steps::{Path, path_json, path_text};
use crate::tally::Count;
use crate::ways::Ways;
use serde_json::Value;
use std::cmp::Reverse;

/// Other ways that are listed.
const MOST_OTHER_WAYS: usize = 3;
/// Objects of a larger group that are examined for other ways; each stands for several.
const MOST_MEMBERS: u64 = 50_000;
/// The least share of the objects for a mention in the sentence: one in this many.
const FEW: u64 = 10;

/// Advice for texts of which only parts are in use.
const WHOLE_TEXT: &str = "a shared string is the whole text of which another String is a part, and lives as long as \
                          that part: keep a copy of the part, as \"\" + part makes it";

/// The chosen objects by how they are held.
struct Groups {
    /// Keys of ways, in their order. Ways of objects that the VM always has, such as live threads, come last.
    list: Vec<(u32, Count)>,
    all: Count,
    unreachable: Count,
    by_objects: bool,
}

impl Groups {
    fn new(graph: &Graph, keys: &mut Keys, chosen: &Chosen, by_objects: bool) -> Groups {
        let (mut all, mut unreachable) = (Count::default(), Count::default());
        let mut groups: Map<u32, (Count, u32)> = Map::default();
        for object in chosen.each(graph) {
            let bytes = graph.size(object);
            all.add(bytes);
            match keys.holders_key(object) {
                NO_KEY => unreachable.add(bytes),
                key => groups.entry(key).or_insert((Count::default(), object)).0.add(bytes),
            }
        }
        let groups_of = |list| Groups { list, all, unreachable, by_objects };
        let rank = |count: &Count| groups_of(Vec::new()).rank(count);
        let mut lasting = Lasting::new(graph, keys.tree());
        let mut is_vms = |object| match is_class(graph, object) {
            true => lasting.is_of_vm(object),
            false => lasting.is_always_there(object),
        };
        let mut list: Vec<_> =
            groups.into_iter().map(|(key, (count, first))| (key, count, is_vms(first))).collect();
        list.sort_by_key(|(key, count, of_vm)| (*of_vm, Reverse(rank(count)), *key));
        groups_of(list.into_iter().map(|(key, count, _)| (key, count)).collect())
    }

    fn rank(&self, count: &Count) -> (u64, u64) {
        if self.by_objects { (count.objects, count.bytes) } else { (count.bytes, count.objects) }
    }

    /// Whether more of the objects are garbage than are held in any one way.
    fn are_garbage(&self) -> bool {
        self.list.first().is_none_or(|(_, first)| self.rank(&self.unreachable) > self.rank(first))
    }

    fn share(&self, count: &Count, what: &str) -> String {
        format!(
            "{} of {} {what} ({})",
            commas(count.objects),
            commas(self.all.objects),
            of_human(count.bytes, self.all.bytes)
        )
    }

    fn sentence(&self, graph: &Graph, keys: &Keys, what: &str, others: &Others) -> String {
        let Some((key, count)) = self.list.first() else {
            let all = format!("{} {what} ({})", commas(self.all.objects), human(self.all.bytes));
            return match graph.finalizers_are_unknown() {
                true => format!(
                    "Nothing in the dump holds the {all}: no root leads to them, but a finalizer may, and the dump has \
                     no finalizers."
                ),
                false => format!("Nothing holds the {all}: no root leads to them."),
            };
        };
        let way = path_text(graph, &keys.path(*key));
        let mut text = if self.are_garbage() {
            format!(
                "No root leads to {}: garbage, or held by references that the dump lacks. {} ({}): {way}",
                self.share(&self.unreachable, what),
                commas(count.objects),
                human(count.bytes)
            )
        } else {
            format!("{}: {way}", self.share(count, what))
        };
        if let Some((key, objects)) =
            others.list.first().filter(|(_, objects)| objects * FEW >= count.objects)
        {
            text += &match *objects >= count.objects {
                true => "; and would still be held by ".to_string(),
                false => format!("; {} of them would still be held by ", others.count(*objects)),
            };
            text += &path_text(graph, &keys.path(*key));
            if others.list.len() > 1 {
                text += &format!(", and in {}", counted(others.list.len() as u64 - 1, "more way"));
            }
        }
        text
    }
}

/// Answers `holders`.
pub fn holders(graph: &mut Graph, options: &Options) -> Result<Answer, String> {
    let by = options.by.as_deref().unwrap_or("bytes");
    let chosen = select(graph, options)?;
    let ways = Ways::find(graph);
    // No object is looked up by its address from here on.
    graph.pages.drop_ranks();
    let graph = &*graph;
    let mut keys = Keys::new(graph, ways);
    let groups = Groups::new(graph, &mut keys, &chosen, by == "objects");
    let others = Others::new(graph, &mut keys, &chosen, groups.list.first());
    let shown = &groups.list[..groups.list.len().min(options.top)];
    let told = &others.list[..others.list.len().min(MOST_OTHER_WAYS)];
    let all_told: Vec<u32> =
        shown.iter().map(|(key, _)| *key).chain(told.iter().map(|(key, _)| *key)).collect();
    keys.measure(&all_told);
    let mut answer = Answer::new(groups.sentence(graph, &keys, &described(options), &others));
    if options.line.is_some() || options.generations.is_some() || options.older.is_some() {
        sampled(&mut answer, &graph.about);
    }
    let (all, unreachable) = (groups.all, groups.unreachable);
    answer.field("matched", all.objects).field("matched_bytes", all.bytes).field("by", by);
    answer.field("unreachable", unreachable.objects).field("unreachable_bytes", unreachable.bytes);
    answer.field("more_groups", (groups.list.len() - shown.len()) as u64);
    let listed = |key: u32, objects: u64, bytes: Option<u64>| -> Value {
        let mut fields = path_json(graph, &keys.path(key));
        fields.insert("objects".into(), objects.into());
        fields.extend(bytes.map(|bytes| ("bytes".to_string(), bytes.into())));
        fields.into()
    };
    let fields: Vec<Value> =
        shown.iter().map(|(key, count)| listed(*key, count.objects, Some(count.bytes))).collect();
    answer.field("groups", fields);
    let fields: Vec<Value> = told.iter().map(|(key, objects)| listed(*key, *objects, None)).collect();
    answer.field("other_ways", fields).field("more_other_ways", (others.list.len() - told.len()) as u64);
    answer.field("other_ways_one_in", others.one_in);
    tables(&mut answer, graph, &keys, (&groups, shown), (&others, told));
    if unreachable.objects > 0 {
        answer.note(format!(
            "no root leads to {} of them ({}): they are garbage, or held by references that the dump lacks",
            commas(unreachable.objects),
            human(unreachable.bytes)
        ));
    }
    if groups.list.first().is_some_and(|(key, _)| is_whole_text(&keys.path(*key))) {
        answer.note(WHOLE_TEXT.to_string());
    }
    Ok(answer)
}

/// Whether other Strings, which are parts of these, hold them.
fn is_whole_text(path: &Path) -> bool {
    path.steps.first().is_some_and(|step| step.edge.as_deref() == Some("shared string"))
}

fn is_class(graph: &Graph, object: u32) -> bool {
    matches!(graph.type_of(object), Type::Class | Type::Module | Type::Iclass | Type::Imemo | Type::Node)
}

/// Other ways that hold the objects of the first group.
struct Others {
    /// Keys of ways, and objects: an estimate if the group is large.
    list: Vec<(u32, u64)>,
    /// 1, or the number of objects that each examined one stands for.
    one_in: u64,
}

impl Others {
    fn new(graph: &Graph, keys: &mut Keys, chosen: &Chosen, first: Option<&(u32, Count)>) -> Others {
        let Some((first, count)) = first else { return Others { list: Vec::new(), one_in: 1 } };
        let one_in = count.objects.div_ceil(MOST_MEMBERS).max(1);
        let mut members = Bits::none(graph.len());
        let mut number = 0;
        for object in chosen.each(graph) {
            if keys.holders_key(object) == *first {
                if number % one_in == 0 {
                    members.add(object);
                }
                number += 1;
            }
        }
        let mut list = other_ways(graph, keys, &members);
        for (_, objects) in &mut list {
            *objects = (*objects * one_in).min(count.objects);
        }
        Others { list, one_in }
    }

    fn count(&self, objects: u64) -> String {
        if self.one_in > 1 { format!("about {}", commas(objects)) } else { commas(objects) }
    }
}

/// The ways for people.
fn tables(
    answer: &mut Answer,
    graph: &Graph,
    keys: &Keys,
    (groups, shown): (&Groups, &[(u32, Count)]),
    (others, told): (&Others, &[(u32, u64)]),
) {
    let way = |key: u32| path_text(graph, &keys.path(key));
    let part = |count: &Count| match groups.by_objects {
        true => percent(count.objects, groups.all.objects),
        false => percent(count.bytes, groups.all.bytes),
    };
    let row = |(key, count): &(u32, Count)| match groups.by_objects {
        true => vec![commas(count.objects), part(count), human(count.bytes), way(*key)],
        false => vec![commas(count.objects), human(count.bytes), part(count), way(*key)],
    };
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    answer.table(
        match groups.by_objects {
            true => &["objects", "share", "bytes", "held by"],
            false => &["objects", "bytes", "share", "held by"],
        },
        &rows,
    );
    let rest = &groups.list[shown.len()..];
    if !rest.is_empty() {
        let mut count = Count::default();
        rest.iter().for_each(|(_, more)| count.merge(*more));
        answer.line(format!(
            "  … {} ({}) in {}",
            commas(count.objects),
            human(count.bytes),
            counted(rest.len() as u64, "more way")
        ));
    }
    if !told.is_empty() {
        let rows: Vec<Vec<String>> =
            told.iter().map(|(key, objects)| vec![others.count(*objects), way(*key)]).collect();
        answer.line("");
        answer.table(&["objects", "without the first way still held by"], &rows);
        if others.list.len() > told.len() {
            answer
                .line(format!("  … and in {}", counted((others.list.len() - told.len()) as u64, "more way")));
        }
    }
}
