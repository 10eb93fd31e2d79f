//! A dump as one page that loads no other files: a treemap of retained bytes, the dominator tree, a table of
//! classes, a search. Its script is a file in this folder.

use crate::answer::{Answer, commas, counted, human};
use crate::dominators::Dominators;
use crate::graph::Graph;
use crate::intern::shown;
use crate::lasting::{self, Lasting};
use crate::lists::retained_by_class;
use crate::options::Options;
use crate::output;
use crate::read::line::Type;
use crate::steps::{class_of, short};
use crate::ways::Ways;
use memintro_analysis::page::{Page, Script};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Objects on the page: those that retain most.
const MOST_NODES: usize = 20_000;
/// Objects for which the page has the way to a root.
const MOST_PATHS: usize = 5_000;
const MOST_CLASSES: usize = 2_000;
const BODY: &str = include_str!("treemap.html");
const SCRIPT: Script =
    Script::new(&[include_str!("treemap.js")], "sha256-K60+wWKjIXaWXntFb2ol0zAUCVvFT1n8jRXDZPuD9KQ=");

/// Names and paths, each once.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Texts {
    fn number(&mut self, text: String) -> usize {
        let next = self.list.len();
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.list.push(text.clone());
            next
        })
    }
}

/// Answers `html`: writes the page into the output, or to standard output.
pub fn write(graph: &mut Graph, options: &Options, file: &str) -> Result<Answer, String> {
    let total = graph.total_bytes();
    let ways = Ways::find(graph);
    let tree = Dominators::compute(graph);
    if tree.is_empty() {
        return Err("no root leads to any object".to_string());
    }
    let chosen = most_retaining(&tree);
    // The page has all objects; the sentence names the largest one that not every program has.
    let mut lasting = Lasting::new(graph, ways.tree());
    let is_other = |number: &&u32| !lasting.is_always_there(tree.order[**number as usize]);
    let first = chosen.iter().skip(1).find(is_other).or(chosen.get(1)).copied().unwrap_or(0);
    let sentence = lasting::sentence(graph, &ways, &tree, first, total);
    let facts = format!("{}, {}, {}", file, counted(graph.len() as u64, "object"), human(total));
    let data = data(graph, &tree, ways, &chosen, (&sentence, total)).to_string();
    let mut page = Vec::with_capacity(data.len());
    let frame = Page {
        title: &format!("memintro heap: {}", file),
        facts: &[facts],
        body: BODY,
        script: Some((SCRIPT, &data)),
        ..Page::default()
    };
    // Writing into memory does not fail.
    let _ = frame.write(&mut page);
    match &options.output {
        Some(path) => output::replace(path, &page)?,
        None => crate::command::print(&page)?,
    }
    let mut answer = Answer::new(sentence);
    if let Some(path) = &options.output {
        answer.line(format!("{} has the page; open it in a browser", shown(path)));
    }
    answer.field("shown", chosen.len() as u64 - 1).field("page_bytes", page.len() as u64);
    Ok(answer)
}

/// The numbers that retain most, in their order, with all of their dominators.
fn most_retaining(tree: &Dominators) -> Vec<u32> {
    let mut chosen: Vec<u32> = (0..tree.len() as u32).collect();
    if chosen.len() > MOST_NODES {
        chosen.select_nth_unstable_by_key(MOST_NODES, |number| {
            (Reverse(tree.retained[*number as usize]), *number)
        });
        chosen.truncate(MOST_NODES + 1);
        chosen.shrink_to_fit();
    }
    // A parent retains at least as much and has a lower number, so it comes before its children.
    chosen.sort_unstable_by_key(|number| (Reverse(tree.retained[*number as usize]), *number));
    chosen
}

fn data(
    graph: &Graph,
    tree: &Dominators,
    ways: Ways,
    chosen: &[u32],
    (sentence, total): (&str, u64),
) -> Value {
    let mut objects = vec![1_u32; tree.len()];
    objects[0] = 0;
    for number in (1..tree.len()).rev() {
        objects[tree.parents[number] as usize] += objects[number];
    }
    let places: HashMap<u32, usize> = chosen.iter().enumerate().map(|(at, number)| (*number, at)).collect();
    let mut texts = Texts::default();
    let mut nodes: Vec<Value> = vec![json!([0, 0, 0, tree.retained[0], objects[0], 0, "", -1])];
    for (at, &number) in chosen.iter().enumerate().skip(1) {
        let object = tree.order[number as usize];
        let path = if at <= MOST_PATHS { texts.number(ways.text(graph, object)) as i64 } else { -1 };
        nodes.push(json!([
            places.get(&tree.parents[number as usize]).copied().unwrap_or(0),
            texts.number(short(graph, object)),
            graph.size(object),
            tree.retained[number as usize],
            objects[number as usize],
            family(graph, object),
            format!("{:#x}", graph.address(object)),
            path,
        ]));
    }
    // The table of classes takes as much.
    drop((objects, places, ways));
    let mut own: HashMap<String, u64> = HashMap::new();
    for object in 0..graph.len() as u32 {
        *own.entry(class_of(graph, object)).or_default() += graph.size(object);
    }
    let classes: Vec<Value> = retained_by_class(graph, tree)
        .iter()
        .take(MOST_CLASSES)
        .map(|(label, count)| {
            let name = graph.kinds.texts.text(*label);
            json!([name, count.objects, own.get(&name), count.bytes])
        })
        .collect();
    let mut notes = Vec::new();
    if let Some(problem) = graph.reading.problems.first() {
        notes.push(format!("The dump is damaged at byte {}: {}.", problem.offset, problem.message));
    }
    if graph.about.truncated {
        notes.push("The dump ends early: it has no last line.".to_string());
    }
    if total > tree.retained[0] {
        let bytes = human(total - tree.retained[0]);
        notes.push(format!("No root leads to {bytes}: garbage, or held by references that the dump lacks."));
    }
    if tree.len() > chosen.len() {
        notes.push(format!(
            "Of {} objects that roots hold this page shows the {} that retain most.",
            commas(tree.len() as u64 - 1),
            commas(chosen.len() as u64 - 1)
        ));
    }
    json!({
        "version": 1, "sentence": sentence, "bytes": total, "notes": notes, "texts": texts.list, "nodes": nodes,
        "classes": classes,
    })
}

fn family(graph: &Graph, object: u32) -> u8 {
    match graph.type_of(object) {
        Type::Object | Type::Struct => 0,
        Type::Array | Type::Hash => 1,
        Type::String | Type::Symbol | Type::Regexp | Type::Match => 2,
        Type::Class | Type::Module | Type::Iclass | Type::Imemo | Type::Node => 3,
        _ => 4,
    }
}
