//! Holders on the way from an object to a root, for people and as JSON.

use crate::answer::commas;
use crate::graph::{Edge, Graph};
use crate::kinds::NO_GENERATION;
use crate::reach::{Holder, Tree};
use crate::read::line::Type;
use serde_json::{Value, json};

/// A holder with more references than this has keys that say little, so all its elements are one.
const FEW_EDGES: usize = 16;

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The object; a group's first.
    pub object: u32,
    /// The name of the reference to the object before it.
    pub edge: Option<String>,
    /// Further holders behind it that it stands for.
    pub more: More,
}

/// Holders that are not listed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum More {
    /// There are none.
    #[default]
    None,
    /// This number of the same kind, which hold each other in the same way.
    Alike(u32),
    /// In the longest of many ways, this number, with a pattern of `period` holders that repeats.
    Again {
        /// In the longest way.
        most: u32,
        /// 1 if all are alike.
        period: u32,
    },
    /// This number of any kinds.
    Gap(u32),
}

impl More {
    /// How many, at most.
    pub fn most(self) -> u32 {
        match self {
            More::None => 0,
            More::Alike(count) | More::Again { most: count, .. } | More::Gap(count) => count,
        }
    }

    fn is_alike(self) -> bool {
        matches!(self, More::None | More::Alike(_))
    }

    /// The number of like holders that it stands for.
    pub(crate) fn and(self, alike: u32) -> More {
        More::Alike(self.most().saturating_add(alike))
    }
}

impl Step {
    /// A holder that stands for itself.
    pub fn one(object: u32, edge: Option<String>) -> Step {
        Step { object, edge, more: More::None }
    }
}

/// A way from an object to a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Holders, the one next to the object first.
    pub steps: Vec<Step>,
    /// Number in the list of roots.
    pub root: usize,
    /// The name of the root's reference.
    pub root_edge: Option<String>,
}

/// Holders of a longer way that are listed next to the object, and as many next to the root: a linked list
/// has a way as long as itself.
const NEAR_OBJECT: usize = 80;
const NEAR_ROOT: usize = 20;

impl Path {
    /// Leaves out the middle of a long way. Returns how many holders the way had; the last one before the gap
    /// stands for the omitted ones.
    pub fn shorten(&mut self, graph: &Graph) -> usize {
        let count = self.steps.len();
        if count > NEAR_OBJECT + NEAR_ROOT {
            let left_out: Vec<Step> = self.steps.drain(NEAR_OBJECT..count - NEAR_ROOT).collect();
            let number = left_out.len() as u32;
            let last = &mut self.steps[NEAR_OBJECT - 1];
            let is_like = |step: &Step| {
                step.edge == last.edge
                    && graph.kind_of[step.object as usize] == graph.kind_of[last.object as usize]
            };
            last.more = if left_out.iter().all(is_like) { More::Alike(number) } else { More::Gap(number) };
        }
        count
    }
}

/// The name of a reference. In memintro's dumps, elements of arrays have their index.
pub fn edge_name(graph: &Graph, holder: u32, edge: Edge) -> Option<String> {
    if edge.name != 0 {
        return Some(graph.edge_names.text(edge.name));
    }
    match (graph.type_of(holder), graph.about.format) {
        (Type::Array, 1..) => Some(format!("[{}]", edge.index)),
        (Type::Array, _) => Some("[]".to_string()),
        _ => None,
    }
}

/// The name of one object's reference to another.
pub fn edge_between(graph: &Graph, holder: u32, object: u32) -> Option<String> {
    match graph.most_telling(graph.edges(holder).filter(|edge| edge.to == object)) {
        Some(edge) => edge_name(graph, holder, edge),
        None => Some("class".to_string()),
    }
}

/// The name of a root's reference to an object.
pub fn root_edge_to(graph: &Graph, root: usize, object: u32) -> Option<String> {
    let edge = graph.most_telling(graph.root_edges(root).filter(|edge| edge.to == object))?;
    (edge.name != 0).then(|| graph.edge_names.text(edge.name))
}

/// Whether the keys of a holder say little.
pub fn has_many_edges(graph: &Graph, holder: u32) -> bool {
    graph.range(holder).len() > FEW_EDGES
}

/// The name of a reference that stands for all like ones: all elements of a large holder share a name.
pub fn general_edge(graph: &Graph, holder: u32, edge: &str) -> String {
    let index = edge.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match index {
        Some(index) if index.bytes().all(|byte| byte.is_ascii_digit()) => "[]".to_string(),
        Some(_) if has_many_edges(graph, holder) => "[]".to_string(),
        _ => edge.to_string(),
    }
}

/// The way from an object to a root along the tree, without the object.
pub fn path_in(graph: &Graph, tree: &Tree, object: u32) -> Option<Path> {
    let (mut steps, mut here) = (Vec::new(), object);
    loop {
        match tree.holder(here) {
            Holder::None => return None,
            Holder::Root(root) => {
                return Some(Path { steps, root, root_edge: root_edge_to(graph, root, here) });
            }
            Holder::Object(holder) => {
                steps.push(Step::one(holder, edge_between(graph, holder, here)));
                here = holder;
            }
        }
    }
}

/// The name of a class or module itself.
pub fn own_name(graph: &Graph, object: u32) -> Option<String> {
    let kind = graph.kind_of[object as usize];
    matches!(graph.type_of(object), Type::Class | Type::Module)
        .then(|| graph.kinds.own_name(kind, graph.address(object)))
        .flatten()
}

/// The class of an object.
pub fn class_of(graph: &Graph, object: u32) -> String {
    graph.kinds.class_of(graph.kind_of[object as usize])
}

/// Where a closure was made, with its method.
pub fn at(graph: &Graph, object: u32) -> Option<String> {
    let kind = &graph.kinds.list[graph.kind_of[object as usize] as usize];
    (kind.at != 0).then(|| graph.kinds.texts.text(kind.at))
}

fn site(graph: &Graph, object: u32) -> Option<String> {
    graph.kinds.site(graph.kind_of[object as usize])
}

/// An object, as JSON.
pub fn object_json(graph: &Graph, object: u32) -> Value {
    let kind = &graph.kinds.list[graph.kind_of[object as usize] as usize];
    let generation = (kind.generation != NO_GENERATION).then_some(kind.generation);
    json!({
        "address": format!("{:#x}", graph.address(object)), "type": kind.kind.name(), "class": class_of(graph, object),
        "name": own_name(graph, object), "bytes": graph.size(object), "line": site(graph, object),
        "generation": generation, "at": at(graph, object),
    })
}

/// A holder, as JSON.
pub fn step_json(graph: &Graph, step: &Step) -> Value {
    json!({
        "class": class_of(graph, step.object), "name": own_name(graph, step.object), "edge": step.edge,
        "type": graph.type_of(step.object).name(), "address": format!("{:#x}", graph.address(step.object)),
        "at": at(graph, step.object).or_else(|| site(graph, step.object)),
        "repeated": step.more != More::None, "left_out": step.more.most(),
        "alike": matches!(step.more, More::Alike(_) | More::Again { period: 1, .. }), "text": step_text(graph, step),
    })
}

/// A path's fields, as JSON.
pub fn path_json(graph: &Graph, path: &Path) -> serde_json::Map<String, Value> {
    let mut fields = serde_json::Map::new();
    let steps: Vec<Value> = path.steps.iter().map(|step| step_json(graph, step)).collect();
    let left_out: u64 = path.steps.iter().map(|step| u64::from(step.more.most())).sum();
    fields.insert("path".into(), steps.into());
    fields.insert("shortened".into(), (left_out > 0).into());
    fields.insert("left_out".into(), left_out.into());
    fields.insert("root".into(), graph.edge_names.text(graph.roots[path.root].name).into());
    fields.insert("root_edge".into(), path.root_edge.clone().into());
    fields.insert("text".into(), path_text(graph, path).into());
    fields
}

/// A holder in few words: `Archive#@recent`, `Array[3]`, `value of Thread`; `… Node#@next` if some behind it are left out.
fn step_text(graph: &Graph, step: &Step) -> String {
    let text = named_edge(graph, step.object, step.edge.as_deref().unwrap_or(""));
    if step.more == More::None { text } else { format!("… {text}") }
}

/// An object in few words: its class, the name of a class itself, or where a closure was made.
pub fn short(graph: &Graph, object: u32) -> String {
    let class = class_of(graph, object);
    match (own_name(graph, object), class.as_str()) {
        (Some(name), "Class" | "Module") => return format!("{} {name}", class.to_lowercase()),
        (Some(name), _) => return name,
        _ => {}
    }
    match (at(graph, object), class.as_str()) {
        (Some(at), "Proc" | "(proc)" | "imemo_env") => format!("block at {at}"),
        (Some(at), _) => format!("{class} at {at}"),
        _ => class,
    }
}

/// The holders of a path in one line: `Archive#@recent (Array) ← block at mailer.rb:12 ← local bus`.
pub fn path_text(graph: &Graph, path: &Path) -> String {
    path_parts(graph, path).join(" ← ")
}

/// The parts of that line. A list and the variable that holds it are one part.
pub fn path_parts(graph: &Graph, path: &Path) -> Vec<String> {
    let mut parts: Vec<(String, More)> = Vec::new();
    let steps = without_shared(&path.steps);
    let mut steps = steps.iter().peekable();
    let mut inner: Option<(String, String)> = None;
    while let Some(step) = steps.next() {
        let edge = step.edge.as_deref().unwrap_or("");
        let plain = matches!(graph.type_of(step.object), Type::Array | Type::Hash);
        let next = steps.peek().and_then(|next| next.edge.as_deref());
        // A list in a variable is named together with the variable, in one part.
        if plain
            && inner.is_none()
            && step.more == More::None
            && next.is_some_and(|edge| !edge.starts_with('['))
        {
            let suffix = if edge.starts_with('[') && edge != "[]" { edge.to_string() } else { String::new() };
            inner = Some((suffix, class_of(graph, step.object)));
            continue;
        }
        let mut text = named_edge(graph, step.object, edge);
        if let Some(inner) = inner.take() {
            text += &in_variable(inner);
        }
        match parts.last_mut() {
            Some((last, more)) if *last == text && more.is_alike() && step.more.is_alike() => {
                *more = more.and(1).and(step.more.most());
            }
            _ => parts.push((text, step.more)),
        }
    }
    let mut root = root_text(graph, path);
    if let Some(inner) = inner.take() {
        root += &in_variable(inner);
    }
    parts.push((root, More::None));
    parts.into_iter().map(|(text, more)| with_more(text, more)).collect()
}

/// The list that is in a variable, and how it holds the object. Names of hidden classes have parentheses of their own.
fn in_variable((suffix, class): (String, String)) -> String {
    if class.starts_with('(') { format!("{suffix} {class}") } else { format!("{suffix} ({class})") }
}

/// Text for people treats an Array that shares the elements of a hidden one as their owner.
fn without_shared(steps: &[Step]) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        let mut step = step.clone();
        if step.edge.as_deref() == Some("shared array")
            && let Some(hidden) = out.pop_if(|last| last.more == More::None)
        {
            step.edge = hidden.edge;
        }
        out.push(step);
    }
    out
}

fn with_more(text: String, more: More) -> String {
    let times = |most: u32| commas(u64::from(most) + 1);
    match more {
        More::None | More::Alike(0) => text,
        More::Alike(most) => format!("{text}, {} times", times(most)),
        More::Again { most, period: 1 } => format!("{text}, up to {} times", times(most)),
        More::Again { .. } | More::Gap(_) => format!("… {text}"),
    }
}

fn named_edge(graph: &Graph, holder: u32, edge: &str) -> String {
    let name = own_name(graph, holder);
    let short = short(graph, holder);
    let is_singleton = name.as_ref() == Some(&short);
    match (edge.as_bytes(), name) {
        (_, Some(name)) if is_singleton && edge == OF_SINGLETON => name,
        (_, Some(name)) if is_singleton => format!("{name} ({edge})"),
        ([b'@', b'@', ..] | [b'@', ..], Some(name)) => format!("{name}.{edge}"),
        ([b':', b':', ..], Some(name)) if name == "Object" => edge[2..].to_string(),
        ([b':', b':', ..], Some(name)) => format!("{name}{edge}"),
        ([b'@', ..], None) => format!("{short}#{edge}"),
        ([b'[', ..] | [b'.', ..], None) => format!("{short}{edge}"),
        ([], _) => short,
        _ if edge == "(internal)" => short,
        _ if edge.starts_with("local ") => format!("{edge} of {short}"),
        (_, None) if has_parts(graph, holder, edge) => format!("{edge} of {short}"),
        _ => format!("{short} ({edge})"),
    }
}

/// The way in which the class of one object holds that object.
const OF_SINGLETON: &str = "object of the singleton class";

/// Whether it is an object of Ruby with parts that have names of their own: the value of a Thread, the receiver of an
/// Enumerator.
fn has_parts(graph: &Graph, holder: u32, edge: &str) -> bool {
    graph.type_of(holder) == Type::Data
        && !matches!(class_of(graph, holder).as_str(), "Proc" | "(proc)")
        && edge.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b' ')
}

fn root_text(graph: &Graph, path: &Path) -> String {
    root_name(&graph.edge_names.text(graph.roots[path.root].name), path.root_edge.as_deref())
}

/// A root by its kind, or by the name of its reference.
pub fn root_name(kind: &str, edge: Option<&str>) -> String {
    match (edge, kind) {
        (Some(edge), _) if edge != "(internal)" => edge.to_string(),
        // Blocks of at_exit.
        (_, "end_proc") => "root end_proc (at_exit)".to_string(),
        (_, kind) => format!("root {kind}"),
    }
}
