//! Choosing objects by class, address, call site and generation.

use crate::class_names;
use crate::graph::Graph;
use crate::intern::shown;
use crate::kinds::NO_GENERATION;
use crate::options::Options;
use crate::reach::Bits;

/// The chosen objects.
#[derive(Debug)]
pub struct Chosen {
    /// The chosen objects as bits: if all objects are chosen, a list would take as much memory as the
    /// references.
    pub bits: Bits,
    /// How many they are.
    pub count: u64,
    /// The first in the order of the dump.
    pub first: u32,
}

impl Chosen {
    /// Each of them, in the order of the dump.
    pub fn each(&self, graph: &Graph) -> impl Iterator<Item = u32> + '_ {
        (self.first..graph.len() as u32).filter(|object| self.bits.has(*object))
    }
}

/// The objects that the options select, or an error if there are none.
pub fn select(graph: &Graph, options: &Options) -> Result<Chosen, String> {
    // The last generation whose objects have outlived so many; none if there were fewer.
    let last = options.older.map(|older| newest(graph).checked_sub(older));
    let young = |kind: u32| {
        let born = graph.kinds.list[kind as usize].generation;
        last.is_some_and(|last| born == NO_GENERATION || last.is_none_or(|last| born > last))
    };
    let kinds: Vec<bool> =
        (0..graph.kinds.list.len() as u32).map(|kind| fits(graph, kind, options) && !young(kind)).collect();
    let mut chosen = Chosen { bits: Bits::none(graph.len()), count: 0, first: u32::MAX };
    let mut choose = |object: u32| {
        if kinds[graph.kind_of[object as usize] as usize] && !chosen.bits.has(object) {
            chosen.bits.add(object);
            chosen.count += 1;
            chosen.first = chosen.first.min(object);
        }
    };
    if options.addresses.is_empty() {
        (0..graph.len() as u32).for_each(choose);
    } else {
        options.addresses.iter().filter_map(|address| graph.find(*address)).for_each(&mut choose);
    }
    if chosen.count == 0 { Err(nothing(graph, options)) } else { Ok(chosen) }
}

/// The generation when the dump was made, or the last one in which an object was made.
fn newest(graph: &Graph) -> u32 {
    let known = |generation: &u32| *generation != NO_GENERATION;
    let made = graph.kinds.list.iter().map(|kind| kind.generation).filter(known).max();
    Some(graph.about.generation).filter(known).or(made).unwrap_or(0)
}

fn fits(graph: &Graph, number: u32, options: &Options) -> bool {
    let kind = &graph.kinds.list[number as usize];
    if let Some(class) = &options.class
        && !graph.kinds.is_called(number, &class_names::meant(class))
    {
        return false;
    }
    if let Some(line) = &options.line {
        let file = graph.kinds.texts.text(kind.file);
        let site = format!("{file}:{}", kind.line);
        if kind.file == 0 || !(file == *line || ends_with_path(&site, line) || ends_with_path(&file, line)) {
            return false;
        }
    }
    options
        .generations
        .is_none_or(|(from, to)| kind.generation != NO_GENERATION && (from..=to).contains(&kind.generation))
}

/// Whether a path ends with another one: `app/a.rb:3` with `a.rb:3`, and not with `.rb:3`.
fn ends_with_path(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || end.starts_with('/'))
}

/// The description of the selection, for a sentence.
pub fn described(options: &Options) -> String {
    let class = options.class.as_ref().map(shown);
    let mut text = class.clone().unwrap_or_else(|| "objects".to_string());
    if let [address] = options.addresses[..] {
        text = format!("{} at {address:#x}", class.as_deref().unwrap_or("the object"));
    }
    if let Some(line) = &options.line {
        text += &format!(" from {}", shown(line));
    }
    if let Some((from, to)) = options.generations {
        text += &if from == to {
            format!(" of generation {from}")
        } else {
            format!(" of generations {from}..{to}")
        };
    }
    if let Some(older) = options.older {
        text += &format!(" that outlived {older} collection{}", if older == 1 { "" } else { "s" });
    }
    text
}

fn nothing(graph: &Graph, options: &Options) -> String {
    let mut text = format!("there is no object that fits: {}", described(options));
    let ages = options.generations.is_some() || options.older.is_some();
    if options.line.is_some() && !graph.about.sites {
        text += &format!("; the dump has no lines of allocation ({})", graph.about.how_to_note());
    } else if ages && !graph.about.generations {
        text += &format!("; the dump has no generations ({})", graph.about.how_to_note());
    } else if let Some(class) = &options.class {
        let last = class.rsplit("::").next().unwrap_or(class).to_lowercase();
        let mut like: Vec<String> = (0..graph.kinds.list.len() as u32)
            .map(|kind| graph.kinds.class_of(kind))
            .filter(|name| name.to_lowercase().contains(&last))
            .collect();
        like.sort();
        like.dedup();
        like.truncate(5);
        if !like.is_empty() {
            text += &format!("; there are {}", like.join(", "));
        }
    }
    text
}
