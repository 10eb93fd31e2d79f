//! A dump as Chrome's developer tools read it: `.heapsnapshot`.
//!
//! The format is JSON with flat lists of numbers: nodes, with how many edges each has; edges, in the order of
//! nodes; and texts. Its first node holds all roots. Node numbers in edges count list entries, not nodes.

use crate::answer::{Answer, counted};
use crate::graph::Graph;
use crate::intern::{Map, shown};
use crate::options::Options;
use crate::output;
use crate::pages::NONE;
use crate::reach::{classes_of_kinds, late_classes, reach};
use crate::read::line::Type;
use crate::read::source::plain;
use crate::steps::{edge_name, own_name};
use std::io::{self, BufWriter, Write};

const NODE_FIELDS: u64 = 7;
const META: &str = r#"{"node_fields":["type","name","id","self_size","edge_count","trace_node_id","detachedness"],"node_types":[["hidden","array","string","object","code","closure","regexp","number","native","synthetic","concatenated string","sliced string","symbol","bigint","object shape"],"string","number","number","number","number","number"],"edge_fields":["type","name_or_index","to_node"],"edge_types":[["context","element","property","internal","hidden","shortcut","weak"],"string_or_number","node"],"trace_function_info_fields":["function_id","name","script_name","script_id","line","column"],"trace_node_fields":["id","function_info_index","count","size","children"],"sample_fields":["timestamp_us","last_assigned_id"],"location_fields":["object_index","script_id","line","column"]}"#;
const SYNTHETIC: u64 = 9;
const ELEMENT: u64 = 1;
const PROPERTY: u64 = 2;
const INTERNAL: u64 = 3;

/// Texts of the export, each once.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    numbers: Map<String, u64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as u64;
        self.list.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }
}

/// Writes the export to the output, or to standard output.
pub fn write(graph: &Graph, options: &Options) -> Result<Answer, String> {
    let edges = match &options.output {
        Some(path) => output::write(path, |out| export(graph, out))?,
        None => match export(graph, &mut BufWriter::with_capacity(1 << 20, io::stdout().lock())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            other => other.map_err(|error| format!("standard output: {}", plain(&error)))?,
        },
    };
    let nodes = graph.len() as u64 + graph.roots.len() as u64 + 1;
    let mut answer = Answer::new(format!(
        "{} and {} written{}; open it in Chrome's developer tools, Memory, Load",
        counted(nodes, "node"),
        counted(edges, "edge"),
        options.output.as_ref().map(|path| format!(" to {}", shown(path))).unwrap_or_default()
    ));
    answer.field("nodes", nodes).field("written_edges", edges);
    Ok(answer)
}

/// Nodes: one that holds all roots, the roots, then all objects. Returns the number of edges.
fn export(graph: &Graph, out: &mut dyn Write) -> io::Result<u64> {
    let mut strings = Strings::default();
    let roots = graph.roots.len() as u64;
    let classes = classes_of_kinds(graph);
    let late = late_classes(graph, &reach(graph, None, &[]));
    let class_of = |object: u32| classes[graph.kind_of[object as usize] as usize];
    let mut edges = roots;
    let count = |object: u32| {
        let own = graph.targets(object).iter().filter(|target| **target != NONE).count() as u64;
        own + u64::from(class_of(object) != NONE)
    };
    for root in 0..graph.roots.len() {
        edges += graph.root_edges(root).count() as u64;
    }
    edges += (0..graph.len() as u32).map(count).sum::<u64>();
    let nodes = graph.len() as u64 + roots + 1;
    write!(
        out,
        "{{\"snapshot\":{{\"meta\":{META},\"node_count\":{nodes},\"edge_count\":{edges},\"trace_function_count\":0}},\n\"nodes\":["
    )?;
    let name = strings.number("(GC roots)");
    write!(out, "{SYNTHETIC},{name},1,0,{roots},0,0")?;
    for root in 0..graph.roots.len() {
        let name = strings.number(&format!("({})", graph.edge_names.text(graph.roots[root].name)));
        let own = graph.root_edges(root).count();
        write!(out, "\n,{SYNTHETIC},{name},{},0,{own},0,0", 2 * root + 3)?;
    }
    let mut names: Map<u32, u64> = Map::default();
    for object in 0..graph.len() as u32 {
        let kind = graph.kind_of[object as usize];
        let name = match own_name(graph, object) {
            Some(name) => strings.number(&format!("class {name}")),
            None => *names.entry(kind).or_insert_with(|| strings.number(&node_name(graph, object))),
        };
        let id = 2 * (u64::from(object) + roots) + 3;
        let kind = node_type(graph.type_of(object));
        write!(out, "\n,{kind},{name},{id},{},{},0,0", graph.size(object), count(object))?;
    }
    out.write_all(b"],\n\"edges\":[")?;
    let at = |object: u32| (u64::from(object) + roots + 1) * NODE_FIELDS;
    let mut comma = "";
    for root in 0..roots {
        write!(out, "{comma}{ELEMENT},{root},{}", (root + 1) * NODE_FIELDS)?;
        comma = "\n,";
    }
    for root in 0..graph.roots.len() {
        for edge in graph.root_edges(root) {
            let (kind, name) = match edge.name {
                0 => (ELEMENT, u64::from(edge.index)),
                name => (PROPERTY, strings.number(&graph.edge_names.text(name))),
            };
            write!(out, "{comma}{kind},{name},{}", at(edge.to))?;
            comma = "\n,";
        }
    }
    let class_text = strings.number("class");
    for object in 0..graph.len() as u32 {
        for edge in graph.edges(object) {
            let name = edge_name(graph, object, edge);
            let (kind, name) = match name.as_deref() {
                None => (INTERNAL, strings.number(&format!("({})", edge.index))),
                Some(text)
                    if text.starts_with('[') && (edge.name == 0 || graph.type_of(object) == Type::Array) =>
                {
                    (ELEMENT, u64::from(edge.index))
                }
                Some(text) => (PROPERTY, strings.number(text)),
            };
            write!(out, "{comma}{kind},{name},{}", at(edge.to))?;
            comma = "\n,";
        }
        let class = class_of(object);
        if class != NONE {
            // A weak edge shows the class and retains nothing; it is strong if the class has no other holder.
            let kind = if late[graph.kind_of[object as usize] as usize] == NONE { 6 } else { INTERNAL };
            write!(out, "{comma}{kind},{class_text},{}", at(class))?;
            comma = "\n,";
        }
    }
    out.write_all(
        b"],\n\"trace_function_infos\":[],\"trace_tree\":[],\"samples\":[],\"locations\":[],\n\"strings\":[",
    )?;
    for (number, text) in strings.list.iter().enumerate() {
        let text = serde_json::to_string(text).unwrap_or_default();
        write!(out, "{}{text}", if number == 0 { "" } else { ",\n" })?;
    }
    out.write_all(b"]}\n")?;
    out.flush()?;
    Ok(edges)
}

/// The group of an object in the developer tools: its class, with the place where a closure was made.
fn node_name(graph: &Graph, object: u32) -> String {
    crate::steps::short(graph, object)
}

fn node_type(kind: Type) -> u8 {
    match kind {
        Type::String => 2,
        Type::Array => 1,
        Type::Regexp | Type::Match => 6,
        Type::Float | Type::Bignum | Type::Complex | Type::Rational => 7,
        Type::Symbol => 12,
        Type::Imemo | Type::Iclass | Type::Node => 4,
        Type::Data | Type::File => 8,
        _ => 3,
    }
}
