//! Answers about single objects: their ways to a root, their referrers, their retained bytes.

use crate::answer::{Answer, commas, counted, human, percent};
use crate::graph::Graph;
use crate::intern::Map;
use crate::options::Options;
use crate::reach::{Bits, Tree, reach};
use crate::select::{described, select};
use crate::steps::{
    More, Path, Step, class_of, edge_name, general_edge, object_json, path_in, path_json, path_text,
    root_name, short, step_json,
};
use crate::tally::Count;
use serde_json::{Value, json};

/// Answers `path`: the shortest way from a root to an object, and others that share no object with it.
pub fn path(graph: &Graph, options: &Options) -> Result<Answer, String> {
    let chosen = select(graph, options)?;
    let object = chosen.first;
    let mut paths = disjoint(graph, object, options.paths);
    let counts: Vec<usize> = paths.iter_mut().map(|path| path.shorten(graph)).collect();
    let name = format!("{} at {:#x}", short(graph, object), graph.address(object));
    let sentence = match paths.first() {
        Some(path) => format!("{name} is held by {}", path_text(graph, path)),
        None if graph.finalizers_are_unknown() => format!(
            "Nothing in the dump holds {name}: no root leads to it, but a finalizer may, and the dump has no \
             finalizers."
        ),
        None => format!("Nothing holds {name}: no root leads to it."),
    };
    let mut answer = Answer::new(sentence);
    for (at, (path, count)) in paths.iter().zip(counts).enumerate() {
        answer.line(format!("  path {}, {}:", at + 1, counted(count as u64, "holder")));
        for step in &path.steps {
            let edge = step.edge.as_deref().unwrap_or("(internal)");
            answer.line(format!(
                "    {edge}  of {} {:#x}",
                short(graph, step.object),
                graph.address(step.object)
            ));
            if step.more != More::None {
                answer.line(format!("    … {} more", commas(u64::from(step.more.most()))));
            }
        }
        let root = graph.edge_names.text(graph.roots[path.root].name);
        answer.line(format!("    {}  of root {root}", path.root_edge.as_deref().unwrap_or("(internal)")));
    }
    if chosen.count > 1 {
        answer.note(format!("this is the first of {} {}", commas(chosen.count), described(options)));
    }
    let paths: Vec<Value> = paths.iter().map(|path| path_json(graph, path).into()).collect();
    answer.field("object", object_json(graph, object)).field("paths", paths);
    Ok(answer)
}

/// Each way is the shortest without the objects of those before it.
fn disjoint(graph: &Graph, object: u32, most: usize) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    let mut used = Bits::none(graph.len());
    let mut cut = Vec::new();
    while paths.len() < most {
        let tree = reach(graph, Some(&used), &cut);
        let Some(path) = path_in(graph, &tree, object) else { break };
        for step in &path.steps {
            used.add(step.object);
        }
        if path.steps.is_empty() {
            cut.push((path.root, object));
        }
        paths.push(path);
    }
    paths
}

/// Nameless references from the machine stack that requested the dump.
fn of_machine_stack(graph: &Graph) -> Vec<(usize, u32)> {
    let of_stack = |root: &usize| graph.is_machine_stack(*root);
    let edges =
        |root: usize| graph.root_edges(root).filter(|edge| edge.name == 0).map(move |edge| (root, edge.to));
    (0..graph.roots.len()).filter(of_stack).flat_map(edges).collect()
}

/// Answers `referrers`: the objects and roots that refer to the chosen ones.
pub fn referrers(graph: &Graph, options: &Options) -> Result<Answer, String> {
    let chosen = select(graph, options)?;
    let targets = &chosen.bits;
    let whole = reach(graph, None, &[]);
    let lasting = reach(graph, None, &of_machine_stack(graph));
    let (mut count, mut garbage, mut shown) = (0_u64, 0_u64, Vec::new());
    let mut groups: Map<(String, String), u64> = Map::default();
    for holder in 0..graph.len() as u32 {
        let mine = graph.edges(holder).filter(|edge| targets.has(edge.to));
        let Some(edge) = graph.most_telling(mine) else { continue };
        if !whole.reaches(holder) {
            garbage += 1;
            continue;
        }
        count += 1;
        let edge = edge_name(graph, holder, edge);
        let general = general_edge(graph, holder, edge.as_deref().unwrap_or("(internal)"));
        *groups.entry((short(graph, holder), general)).or_default() += 1;
        if shown.len() < options.top {
            shown.push(Step::one(holder, edge));
        }
    }
    let mut roots = Vec::new();
    for root in 0..graph.roots.len() {
        for edge in graph.root_edges(root).filter(|edge| targets.has(edge.to)) {
            let name = (edge.name != 0).then(|| graph.edge_names.text(edge.name));
            roots.push((graph.edge_names.text(graph.roots[root].name), name));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let object = chosen.first;
    let what = match chosen.count {
        1 => format!("{} at {:#x}", short(graph, object), graph.address(object)),
        _ => format!("{} {}", commas(chosen.count), described(options)),
    };
    let mut sentence =
        format!("{} and {} refer to {what}", counted(count, "object"), counted(roots.len() as u64, "root"));
    if let Some(((class, edge), objects)) = groups.first() {
        sentence += &format!(", most of them {class} by {edge} ({})", commas(*objects));
    }
    let mut answer = Answer::new(sentence);
    if garbage > 0 {
        answer.note(format!("{} to which no root leads left out: garbage", counted(garbage, "referrer")));
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .take(options.top)
        .map(|((class, edge), objects)| vec![commas(*objects), edge.clone(), class.clone()])
        .collect();
    answer.table(&["objects", "refer by", "class"], &rows);
    for (root, edge) in roots.iter().take(options.top) {
        answer.line(format!(
            "  root {root}{}",
            edge.as_ref().map(|edge| format!(": {edge}")).unwrap_or_default()
        ));
    }
    let listed: Vec<Value> = shown
        .iter()
        .map(|step| {
            let mut fields = step_json(graph, step);
            fields["bytes"] = graph.size(step.object).into();
            fields["only_machine_stack"] = (!lasting.reaches(step.object)).into();
            fields
        })
        .collect();
    let groups: Vec<Value> = groups
        .iter()
        .take(options.top)
        .map(|((class, edge), objects)| json!({ "class": class, "edge": edge, "objects": objects }))
        .collect();
    let roots: Vec<Value> = roots
        .iter()
        .map(|(root, edge)| json!({ "root": root, "root_edge": edge, "text": root_name(root, edge.as_deref()) }))
        .take(options.top)
        .collect();
    answer.field("object", object_json(graph, object)).field("matched", chosen.count);
    answer.field("count", count).field("referrers", listed).field("roots", roots).field("groups", groups);
    Ok(answer)
}

/// Answers `retained`: the objects that would be free without the chosen ones.
pub fn retained(graph: &Graph, options: &Options) -> Result<Answer, String> {
    let chosen = select(graph, options)?;
    let without = &chosen.bits;
    let mut own = Count::default();
    chosen.each(graph).for_each(|object| own.add(graph.size(object)));
    let whole = reach(graph, None, &[]);
    let rest = reach(graph, Some(without), &[]);
    let freed =
        |tree: &Tree, object: u32| (without.has(object) || whole.reaches(object)) && !tree.reaches(object);
    let mut classes: Map<u32, Count> = Map::default();
    let mut all = Count::default();
    for object in (0..graph.len() as u32).filter(|object| freed(&rest, *object)) {
        let bytes = graph.size(object);
        all.add(bytes);
        classes.entry(graph.kinds.label_number(graph.kind_of[object as usize])).or_default().add(bytes);
    }
    let mut classes: Vec<(u32, Count)> = classes.into_iter().collect();
    classes.sort_by_key(|(label, count)| (std::cmp::Reverse(count.bytes), *label));
    let object = chosen.first;
    let what = match chosen.count {
        1 => format!("{} at {:#x} retains", class_of(graph, object), graph.address(object)),
        _ => format!("{} {} retain", commas(chosen.count), described(options)),
    };
    let mut answer = Answer::new(format!(
        "{what} {} in {}: {} of the heap",
        human(all.bytes),
        counted(all.objects, "object"),
        percent(all.bytes, graph.total_bytes())
    ));
    let rows: Vec<Vec<String>> = classes
        .iter()
        .take(options.top)
        .map(|(label, count)| vec![human(count.bytes), commas(count.objects), graph.kinds.texts.text(*label)])
        .collect();
    answer.table(&["bytes", "objects", "class"], &rows);
    let rows: Vec<Value> = classes
        .iter()
        .take(options.top)
        .map(|(label, count)| {
            json!({ "class": graph.kinds.texts.text(*label), "objects": count.objects, "bytes": count.bytes })
        })
        .collect();
    answer.field("matched", own.objects).field("matched_bytes", own.bytes);
    answer.field("retained_bytes", all.bytes).field("retained_objects", all.objects);
    answer.field("retained_classes", rows);
    Ok(answer)
}
