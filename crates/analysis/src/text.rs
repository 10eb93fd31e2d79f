//! The report for people about this process, as `Memintro::Report::Text` writes it in Ruby: the process, the totals, a
//! table of call sites, and notes. A spec compares the two.
//!
//! Ruby's version also writes sums of processes. This one is for what most processes report at their end: it needs no
//! file of Ruby code, which would take longer to load than all of the program's tracking, and no object for each stack.

use std::fmt::Write;

use memintro_abi::{Estimated, Figures, SITE_GC, SiteKind};

use crate::estimates::{Estimate, estimate, left, per_sample};
use crate::sites::{Callers, Sites};
use columns::Columns;
use names::Names;
use stacks::OfLine;
use units::{bytes, count, counted, noun, uncertain};

mod columns;
mod names;
pub mod stacks;
mod units;

/// What the first lines say.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The version of memintro.
    pub memintro: String,
    /// The process.
    pub pid: u32,
    /// The version of Ruby.
    pub ruby: String,
    /// The time.
    pub time: String,
    /// The program's name.
    pub program: Vec<u8>,
    /// `full` or `sampled`, while it is tracked.
    pub mode: Option<&'static str>,
    /// Whether it was tracked from its beginning.
    pub preloaded: bool,
    /// Mean distance of the samples; 0: none.
    pub sample_bytes: u64,
    /// Why allocations do not reach the hook.
    pub problem: Option<String>,
    /// The folder that paths are shown relative to.
    pub root: Option<Vec<u8>>,
    /// Whether colours are wanted.
    pub colour: bool,
    /// Resident bytes of the process, where the kernel says.
    pub rss: Option<u64>,
}

/// Most callers of a site that are shown, and the least share that one must have.
const MOST_CALLERS: usize = 3;
const LEAST_SHARE: f64 = 0.05;
/// Blocks are not smaller: so many more can be where none was sampled.
const LEAST_BLOCK: f64 = 16.0;

/// The report. `by` is what the sites are sorted by, `stacks` what is known of who calls the first of them.
#[must_use]
pub fn report(head: &Head, totals: &Figures, sites: &Sites, by: &str, stacks: &[OfLine]) -> String {
    let mut text = String::with_capacity(4096);
    header(&mut text, head);
    let sums = Sums::of(totals, head.sample_bytes);
    sums.write(&mut text, head.rss);
    text.push('\n');
    let has_callers = body(&mut text, head, &sums, sites, by, stacks);
    notes(&mut text, head, &sums, sites, has_callers);
    text
}

fn header(text: &mut String, head: &Head) {
    let mode = match head.mode {
        None => "not tracking".to_owned(),
        Some(mode) => {
            let distance = if mode == "sampled" && head.sample_bytes > 0 {
                format!(" ({})", bytes(head.sample_bytes.cast_signed()))
            } else {
                String::new()
            };
            format!("{mode} mode{distance}, {}", if head.preloaded { "preloaded" } else { "started live" })
        }
    };
    let Head { memintro, pid, ruby, time, .. } = head;
    let facts = format!("memintro {memintro}: pid {pid}, ruby {ruby}, {mode}, {time}");
    line(text, &dressed(head, "1", &facts));
    line(text, &names::printable(&head.program));
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn dressed(head: &Head, code: &str, text: &str) -> String {
    if head.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// The totals of the process; the variances only where they are estimates.
struct Sums<'a> {
    figures: &'a Figures,
    allocated_bytes: Estimate,
    freed_bytes: Estimate,
    live_bytes: Estimate,
    allocations: Estimate,
    frees: Estimate,
    live_blocks: Estimate,
}

impl<'a> Sums<'a> {
    fn of(figures: &'a Figures, sample_bytes: u64) -> Self {
        let nothing_sampled = figures.allocated_bytes.variance <= 0.0;
        let mean = if nothing_sampled { sample_bytes as f64 } else { 0.0 };
        let byte = mean.max(per_sample(&figures.allocated_bytes));
        let block = (mean / LEAST_BLOCK).max(per_sample(&figures.allocations));
        let all = |of: &Estimated, one: f64| Estimate::of_sum(of, Some(one));
        let live = |came: &Estimated, went: &Estimated, one: f64| {
            let of = left(came, went);
            let value = came.value.wrapping_sub(went.value).cast_signed();
            estimate(value as f64, of.variance, of.skew, one)
        };
        Self {
            figures,
            allocated_bytes: all(&figures.allocated_bytes, byte),
            freed_bytes: all(&figures.freed_bytes, byte),
            live_bytes: live(&figures.allocated_bytes, &figures.freed_bytes, byte),
            allocations: all(&figures.allocations, block),
            frees: all(&figures.frees, block),
            live_blocks: live(&figures.allocations, &figures.frees, block),
        }
    }

    fn is_estimated(&self) -> bool {
        self.figures.estimated != 0
    }

    fn shown(&self, estimate: &Estimate, format: fn(i64) -> String) -> String {
        shown(self.is_estimated().then_some(estimate), estimate.value as i64, format)
    }

    fn counted(&self, estimate: &Estimate, name: &str) -> String {
        format!("{} {}", self.shown(estimate, count), noun(estimate.value as i64, name))
    }

    fn write(&self, text: &mut String, rss: Option<u64>) {
        let _ = writeln!(
            text,
            "live {} in {}, allocated {} in {}, freed {} in {}",
            self.shown(&self.live_bytes, bytes),
            self.counted(&self.live_blocks, "block"),
            self.shown(&self.allocated_bytes, bytes),
            self.counted(&self.allocations, "call"),
            self.shown(&self.freed_bytes, bytes),
            self.shown(&self.frees, count),
        );
        if let Some(rss) = rss {
            let _ = write!(text, "RSS {}; ", bytes(rss.cast_signed()));
        }
        let _ = writeln!(text, "tracking itself uses {}", bytes(self.figures.tracker_bytes.cast_signed()));
    }
}

/// An exact figure, or an estimate with its error or interval.
fn shown(estimate: Option<&Estimate>, value: i64, format: fn(i64) -> String) -> String {
    let Some(estimate) = estimate else { return format(value) };
    let (low, high) = estimate.interval();
    uncertain(value, estimate.standard_error(), Some((low.floor() as i64, high.ceil() as i64)), format)
}

/// The table, and whether there are native callers in it.
fn body(text: &mut String, head: &Head, sums: &Sums<'_>, sites: &Sites, by: &str, stacks: &[OfLine]) -> bool {
    let size = sites.list.len() + sites.left_out;
    if size == 0 {
        advice(text, head);
        return false;
    }
    if sites.list.is_empty() {
        remainder(text, sums, sites);
        return false;
    }
    let (shown, sites_in_all) = (count(sites.list.len() as i64), counted(size as i64, "call site"));
    let _ = writeln!(text, "{shown} of {sites_in_all}, by {by}:\n");
    let names = Names::new(head.root.as_deref());
    let has_callers = table(text, head, &names, sums, sites, by);
    if sites.left_out > 0 {
        text.push('\n');
        remainder(text, sums, sites);
    }
    stacks::write(text, head, &names, sites, stacks, by);
    has_callers
}

fn advice(text: &mut String, head: &Head) {
    if let Some(problem) = &head.problem {
        line(text, "memintro sees no allocation in this process:");
        line(text, problem);
    } else if head.mode.is_some() {
        line(text, "No call site has allocated since tracking started.");
    } else {
        line(
            text,
            "Nothing has been tracked in this process. Call Memintro.start in it and ask again after some work,",
        );
        line(text, "or run the program from its start with: memintro run -- CMD");
    }
}

fn table(text: &mut String, head: &Head, names: &Names, sums: &Sums<'_>, sites: &Sites, by: &str) -> bool {
    let columns = Columns::of(sites, by);
    let live = sums.live_bytes.value as i64;
    let rows: Vec<Vec<String>> = sites.list.iter().map(|site| columns.cells(site, live)).collect();
    let titles = columns.titles();
    let width = |cell: &str| cell.chars().count();
    let widths: Vec<usize> = (0..titles.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max().unwrap_or(0))
        .zip(&titles)
        .map(|(widest, title)| widest.max(width(title)))
        .collect();
    let aligned = |cells: &mut dyn Iterator<Item = &str>, last: &str| {
        let mut line = String::new();
        for (cell, wide) in cells.zip(&widths) {
            let _ = write!(line, "{cell:>wide$}  ");
        }
        line.push_str(last);
        line
    };
    line(text, &dressed(head, "2", &aligned(&mut titles.iter().copied(), "call site")));
    let mut has_callers = false;
    for (site, cells) in sites.list.iter().zip(&rows) {
        let name = names.short(&sites.name(site), site.record.kind == SiteKind::RUBY);
        line(text, &aligned(&mut cells.iter().map(String::as_str), &name));
        if let Some(callers) = site.callers.and_then(|index| sites.callers.get(index as usize)) {
            has_callers |= native_callers(text, callers);
        }
    }
    has_callers
}

fn native_callers(text: &mut String, callers: &Callers) -> bool {
    // One sample in forty says little of a share.
    let least = LEAST_SHARE * f64::from(callers.samples);
    let shown: Vec<_> = callers
        .list
        .iter()
        .filter(|caller| caller.live_share.unwrap_or(caller.share) >= LEAST_SHARE)
        .filter(|caller| f64::from(caller.samples) >= least)
        .collect();
    if shown.iter().all(|caller| caller.frames.is_empty()) {
        return false;
    }
    let percent = |part: f64| format!("{}%", (part * 100.0).round());
    for caller in shown.into_iter().take(MOST_CALLERS) {
        let path = if caller.frames.is_empty() {
            "(other)".to_owned()
        } else {
            caller.frames.iter().rev().map(String::as_str).collect::<Vec<_>>().join(" → ")
        };
        let place = caller
            .location
            .as_ref()
            .map_or_else(String::new, |place| format!(" ({})", names::printable(place.as_bytes())));
        let live =
            caller.live_share.map_or_else(String::new, |part| format!("~{} of live bytes, ", percent(part)));
        let _ = writeln!(
            text,
            "    via {}{place}: {live}~{} of allocations ({} of {} samples)",
            names::printable(path.as_bytes()),
            percent(caller.share),
            caller.samples,
            callers.samples
        );
    }
    true
}

/// The sites that are left out.
fn remainder(text: &mut String, sums: &Sums<'_>, sites: &Sites) {
    let more = if sites.list.is_empty() { "call site" } else { "more call site" };
    let live = sites.live_bytes_left_out;
    let error = remaining_error(sums, sites);
    let live = error.map_or_else(|| bytes(live), |error| uncertain(live, error, None, bytes));
    let _ = writeln!(text, "{}, live {live}", counted(sites.left_out as i64, more));
}

/// The sites' samples are drawn independently, so their variances add up.
fn remaining_error(sums: &Sums<'_>, sites: &Sites) -> Option<f64> {
    let sampled = sites.list.iter().any(|site| site.record.blocks.estimated != 0);
    (sampled || sites.variance_left_out.is_some()).then(|| {
        let variance = sites.variance_left_out.unwrap_or(0.0).max(0.0);
        let one = sums.live_bytes.per_sample;
        one.mul_add(one, variance).sqrt()
    })
}

/// What is moved out of Ruby's transient heap, up to 3.2, is the collector's where the object is not tracked.
const MOVED: &str = "(gc) has the contents of arrays, hashes, structs and objects that outlived a collection, if no line is known \
                     that made them: Ruby before 3.3 moves them then. With --objects, their lines have them; `memintro \
                     holders` says who holds them.";

/// Whether the collector has a tenth of what is live, on a Ruby that moves.
fn has_moved(head: &Head, sums: &Sums<'_>, sites: &Sites) -> bool {
    let mut version = head.ruby.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
    let is_old = (version.next(), version.next()) < (Some(3), Some(3));
    let collector = sites.list.iter().find(|site| site.record.id == SITE_GC);
    let live = |total: Estimated, freed: Estimated| total.value.saturating_sub(freed.value);
    let all = live(sums.figures.allocated_bytes, sums.figures.freed_bytes);
    is_old
        && collector.is_some_and(|site| {
            let own = live(site.record.blocks.total_bytes, site.record.blocks.freed_bytes);
            own > 0 && own >= all / 10
        })
}

fn notes(text: &mut String, head: &Head, sums: &Sums<'_>, sites: &Sites, has_callers: bool) {
    let mut notes = Vec::new();
    let figures = sums.figures;
    if sums.is_estimated() || sites.has_sampled_objects() {
        let distance = if head.sample_bytes > 0 {
            format!(", one byte in {}", count(head.sample_bytes.cast_signed()))
        } else {
            String::new()
        };
        notes.push(format!(
            "Figures with ~ are estimated from a sample{distance}. After ± stands the standard error; the truth is \
             within two of them in 95 of 100 cases. A range in parentheses, where few blocks were sampled, holds it as \
             often."
        ));
    }
    if figures.dropped > 0 {
        notes.push(format!(
            "{} could not be followed: the budget (max_tracker_bytes), the memory or the 65,536 different sizes of 64 \
             KiB and more that fit the table ran out. The figures are too low by these.",
            counted(figures.dropped.cast_signed(), "allocation")
        ));
    }
    if figures.missed_frees > 0 {
        let was = if figures.missed_frees == 1 { "was" } else { "were" };
        notes.push(format!(
            "{} went past the hook and {was} noticed when the address came back.",
            counted(figures.missed_frees.cast_signed(), "free")
        ));
        notes.push("`Memintro.doctor` lists how frees can bypass the hook.".to_owned());
    }
    if let Some(problem) = head.problem.as_ref().filter(|_| sites.list.len() + sites.left_out > 0) {
        notes.push(format!("Allocations are not seen: {problem}"));
    }
    if has_callers {
        notes.push(
            "\"via\" names the C functions that asked malloc, by samples of single allocations: estimates."
                .to_owned(),
        );
    }
    if has_moved(head, sums, sites) {
        notes.push(MOVED.to_owned());
    }
    if head.mode.is_none() && figures.allocations.value > 0 {
        notes.push("Tracking is off: these are the figures of its last run.".to_owned());
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{}{note}", dressed(head, "33", "note: "));
    }
}
