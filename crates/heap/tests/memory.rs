//! Counts the bytes that loading and answers take for an object and for a reference. It runs in a process of
//! its own, because it replaces the allocator.

use memintro_heap::answer::Answer;
use memintro_heap::diff::{self, Objects, Signs};
use memintro_heap::dominators::Dominators;
use memintro_heap::graph::Graph;
use memintro_heap::holders::holders;
use memintro_heap::options::Options;
use memintro_heap::read::Wants;
use memintro_heap::read::source::Source;
use memintro_heap::strings::{self, Strings};
use memintro_heap::{html, lists, paths};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: it does what the system's allocator does, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(place, layout) }
    }

    // glibc moves the pages of a large list, and takes no second ones.
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        grow(size);
        // SAFETY: as of the caller.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A dump that is made as it is read: of so many objects with so many references each, with names.
struct Dump {
    objects: u64,
    next: u64,
    edges: u64,
    strings: bool,
    line: String,
    sent: usize,
}

impl Dump {
    fn new(objects: u64, edges: u64) -> Dump {
        let line = "{\"type\":\"ROOT\", \"root\":\"memintro\", \"format\":1}\n\
                    {\"type\":\"ROOT\", \"root\":\"vm\", \"references\":[\"0x7f0000000000\"]}\n";
        Dump { objects, next: 0, edges, strings: false, line: line.to_string(), sent: 0 }
    }

    fn fill(&mut self) {
        let address = |object: u64| 0x7f00_0000_0000 + (object % self.objects) * 40;
        let own = self.next;
        self.line.clear();
        self.sent = 0;
        if self.strings {
            let _ = writeln!(
                self.line,
                "{{\"address\":\"{:#x}\", \"type\":\"STRING\", \"bytesize\":20, \"value\":\"text {own}\", \"memsize\":40}}",
                address(own)
            );
            self.next += 1;
            return;
        }
        let _ =
            write!(self.line, "{{\"address\":\"{:#x}\", \"type\":\"OBJECT\", \"references\":[", address(own));
        for at in 0..self.edges {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(self.line, "{comma}\"{:#x}\"", address(own * 7 + 13 * at + 1));
        }
        self.line.push_str("], \"edges\":[");
        for at in 0..self.edges {
            self.line.push_str(if at == 0 { "\"@next\"" } else { ", \"@next\"" });
        }
        let _ = writeln!(self.line, "], \"file\":\"a.rb\", \"line\":{}, \"memsize\":40}}", own % 1000);
        self.next += 1;
    }
}

impl Read for Dump {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.sent == self.line.len() && self.next < self.objects {
            self.fill();
        }
        let rest = &self.line.as_bytes()[self.sent..];
        let some = buffer.len().min(rest.len());
        buffer[..some].copy_from_slice(&rest[..some]);
        self.sent += some;
        Ok(some)
    }
}

/// Bytes at the peak, above those before.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    drop(work());
    PEAK.load(Ordering::Relaxed) - before
}

fn load(objects: u64, edges: u64, names: bool) -> Graph {
    let wants = Wants { references: true, edges: names, sites: true, values: false };
    let graph = Graph::load(Source::new(Dump::new(objects, edges)).unwrap(), wants, None);
    assert_eq!((graph.len() as u64, graph.edge_count()), (objects, objects * edges + 1));
    graph
}

/// Numbers of objects for the slowest answers, and for all others.
const SOME: u64 = 25_000;
const MANY: u64 = 50_000;
/// The smaller number of objects, which exposes fixed costs: buffers and per-page memory.
const MOST: u64 = 200_000;

/// Checks bytes for an object with one reference and for one with four: by how much the peak is higher with four times as
/// many as `few`, so that buffers and the like do not count.
fn check(name: &str, few: u64, object: f64, reference: f64, work: impl Fn(u64, u64) -> usize) {
    let (few, many) = (few, 4 * few);
    for edges in [1, 4] {
        let rate = (work(many, edges) as f64 - work(few, edges) as f64) / (many - few) as f64;
        let most = object + reference * edges as f64;
        println!("{name}: {rate:.1} bytes for an object with {edges} references, at most {most}");
        assert!(
            rate > 0.5 * most && rate <= most,
            "{name}: {rate} for an object with {edges}; at most {most}"
        );
    }
}

#[test]
fn an_object_and_a_reference_take_few_bytes() {
    // For a live process: names of references, no dominators.
    let options = Options { class: Some("OBJECT".into()), top: 5, ..Options::default() };
    check("holders", MANY, 24.0, 8.0, |objects, edges| {
        peak(|| holders(&mut load(objects, edges, true), &options).unwrap())
    });
    check("dominators", MOST, 34.0, 8.0, |objects, edges| {
        peak(|| Dominators::compute(&mut load(objects, edges, false)))
    });
    check("top", MANY, 34.0, 9.0, |objects, edges| {
        peak(|| lists::top(&mut load(objects, edges, true), &options).unwrap())
    });
    type Ask = fn(&Graph, &Options) -> Result<Answer, String>;
    let asks: [(&str, Ask); 3] =
        [("path", paths::path), ("referrers", paths::referrers), ("retained", paths::retained)];
    for (name, ask) in asks {
        check(name, SOME, 30.0, 8.0, |objects, edges| {
            peak(|| ask(&load(objects, edges, true), &options).unwrap())
        });
    }
    // For each dump; references are not kept.
    for dumps in [2, 3] {
        check("diff", MANY, 21.0, 0.0, |objects, edges| {
            let load = |signs: &mut Signs| {
                Objects::load(Source::new(Dump::new(objects, edges)).unwrap(), None, signs)
            };
            let mut signs = Signs::default();
            let answer = || {
                let all: Vec<Objects> = (0..dumps).map(|_| load(&mut signs)).collect();
                diff::diff(&all, &signs, &options).unwrap()
            };
            peak(answer) / dumps
        });
    }
    // Objects are strings here, each with a value of its own.
    check("duplicates", SOME, 40.0, 0.0, |objects, edges| {
        peak(|| {
            let strings = Dump { strings: true, ..Dump::new(objects, edges) };
            strings::duplicates(&Strings::load(Source::new(strings).unwrap(), &options), &options).unwrap()
        })
    });
    check("page", MOST, 40.0, 10.0, |objects, edges| {
        let page = std::env::temp_dir().join(format!("memintro-memory-{}.html", std::process::id()));
        let options = Options { output: Some(page.clone()), ..Options::default() };
        let peak = peak(|| html::write(&mut load(objects, edges, true), &options, "dump").unwrap());
        std::fs::remove_file(page).unwrap();
        peak
    });
}
