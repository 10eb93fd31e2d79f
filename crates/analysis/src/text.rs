//! The report for people: the process, the totals, a table of call sites, and notes. Figures are rounded; JSON has them
//! exactly.

use std::fmt::Write;

use memintro_abi::{Estimated, Figures, SiteKind};

use crate::estimates::{Estimate, Totals};
use crate::report::Report;
use crate::sites::{Callers, Site, Sites};
use columns::Columns;
use names::Names;
use stacks::OfLine;
use tables::Aligned;
use units::{bytes, count, counted, noun, uncertain};

mod columns;
pub mod counts;
pub(crate) mod names;
pub mod objects;
mod old;
pub mod stacks;
pub(crate) mod tables;
pub mod units;

pub(crate) use names::is_unprintable;
pub use names::printable;

/// How a report is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// The figure that the sites are sorted by.
    pub by: &'static str,
    /// The folder that paths are shown relative to.
    pub root: Option<Vec<u8>>,
    /// Whether colours are wanted.
    pub colour: bool,
    /// Whether the command writes it, which gives other advice than the process itself.
    pub is_command: bool,
}

/// Most callers of a site that are shown, and the least share that one must have.
const MOST_CALLERS: usize = 3;
const LEAST_SHARE: f64 = 0.05;

impl Report {
    /// The report for people, with the sites in their order. `stacks` is what is known of who calls the first of them: see
    /// [`stacks::heaviest`].
    #[must_use]
    pub fn text(&self, options: &Options, stacks: &[OfLine]) -> String {
        if let Some(collections) = self.older_than {
            return self.old_text(options, collections);
        }
        let mut text = String::with_capacity(4096);
        self.header(&mut text, options);
        let sums = Sums::new(self);
        sums.write(&mut text, self.process.rss_bytes);
        text.push('\n');
        let has_callers = body(&mut text, self, options, &sums, stacks);
        notes(&mut text, self, options, &sums, has_callers);
        text
    }

    fn header(&self, text: &mut String, options: &Options) {
        let process = &self.process;
        let version = process.memintro.as_deref().unwrap_or_default();
        let mut facts = vec![format!("pid {}", process.pid.unwrap_or_default())];
        facts.extend(process.ruby.as_ref().map(|ruby| format!("ruby {ruby}")));
        facts.extend(self.manner());
        facts.extend(self.ending());
        facts.extend(process.time.clone());
        let facts = names::printable(format!("memintro {version}: {}", facts.join(", ")).as_bytes());
        line(text, &dressed(options, "1", &facts));
        if let Some(program) = &process.program {
            line(text, &names::printable(program.as_bytes()));
        }
    }

    /// The way of tracking, if it is known.
    fn manner(&self) -> Option<String> {
        let process = &self.process;
        let mode = process.mode.as_deref()?;
        if process.tracking != Some(true) {
            return Some("not tracking".to_owned());
        }
        let distance = match process.sample_bytes {
            Some(mean) if mode == "sampled" && mean > 0 => format!(" ({})", bytes(mean)),
            _ => String::new(),
        };
        let start = if process.preloaded == Some(true) { "preloaded" } else { "started live" };
        Some(format!("{mode} mode{distance}, {start}"))
    }

    /// The way it ended, if it could not report itself.
    fn ending(&self) -> Option<String> {
        if let Some(signal) = self.process.signal.filter(|signal| *signal > 0) {
            let name = i32::try_from(signal).ok().and_then(signal_hook::low_level::signal_name);
            return Some(format!("killed by {}", name.map_or_else(|| format!("SIG{signal}"), str::to_owned)));
        }
        let status = self.process.exit_status?;
        let has_ruby = self.sites.list.iter().any(|site| site.record.kind == SiteKind::RUBY);
        Some(format!("left by {}({status})", if has_ruby { "exit!" } else { "_exit" }))
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn dressed(options: &Options, code: &str, text: &str) -> String {
    tables::dressed(options.colour, code, text)
}

/// The totals of the process, as they are shown.
struct Sums<'a> {
    figures: &'a Figures,
    of: Totals,
}

impl<'a> Sums<'a> {
    fn new(report: &'a Report) -> Self {
        let sample_bytes = report.process.sample_bytes.unwrap_or(0).max(0) as u64;
        Self { figures: &report.totals, of: Totals::of(&report.totals, sample_bytes) }
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

    fn write(&self, text: &mut String, rss: Option<i64>) {
        let _ = writeln!(
            text,
            "live {} in {}, allocated {} in {}, freed {} in {}",
            self.shown(&self.of.live_bytes, bytes),
            self.counted(&self.of.live_blocks, "block"),
            self.shown(&self.of.allocated_bytes, bytes),
            self.counted(&self.of.allocations, "call"),
            self.shown(&self.of.freed_bytes, bytes),
            self.shown(&self.of.frees, count),
        );
        if let Some(rss) = rss {
            let _ = write!(text, "RSS {}; ", bytes(rss));
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
fn body(text: &mut String, report: &Report, options: &Options, sums: &Sums<'_>, stacks: &[OfLine]) -> bool {
    let sites = &report.sites;
    if sites.size() == 0 {
        advice(text, report);
        return false;
    }
    if sites.list.is_empty() {
        remainder(text, sums, sites);
        return false;
    }
    let (shown, all) = (count(sites.list.len() as i64), counted(sites.size() as i64, "call site"));
    let _ = writeln!(text, "{shown} of {all}, by {}:\n", options.by);
    let names = Names::new(options.root.as_deref());
    let has_callers = table(text, options, &names, sums, sites);
    if sites.left_out > 0 {
        text.push('\n');
        remainder(text, sums, sites);
    }
    stacks::write(text, options, &names, sites, stacks);
    has_callers
}

fn advice(text: &mut String, report: &Report) {
    if let Some(problem) = &report.process.problem {
        line(text, "memintro sees no allocation in this process:");
        line(text, &names::printable(problem.as_bytes()));
        return;
    }
    match report.process.tracking {
        Some(true) => line(text, "No call site has allocated since tracking started."),
        // Only a process that tracked leaves a dump, and the dump does not contain the mode.
        None => line(text, "Nothing has been allocated in this process."),
        Some(false) => {
            line(
                text,
                "Nothing has been tracked in this process. Call Memintro.start in it and ask again after some work,",
            );
            line(text, "or run the program from its start with: memintro run -- CMD");
        }
    }
}

fn table(text: &mut String, options: &Options, names: &Names, sums: &Sums<'_>, sites: &Sites) -> bool {
    let columns = Columns::new(sites, options.by);
    let live = sums.of.live_bytes.value as i64;
    let rows: Vec<Vec<String>> = sites.list.iter().map(|site| columns.cells(site, live)).collect();
    let mut has_callers = false;
    write_table(text, options, names, sites, &columns.titles(), &rows, |text, site| {
        if let Some(callers) = sites.callers_of(site) {
            has_callers |= native_callers(text, callers);
        }
    });
    has_callers
}

/// Cells, aligned below their titles, and the name of each site. `after` writes what follows a row.
fn write_table(
    text: &mut String,
    options: &Options,
    names: &Names,
    sites: &Sites,
    titles: &[&str],
    rows: &[Vec<String>],
    mut after: impl FnMut(&mut String, &Site),
) {
    let aligned = Aligned::new(titles, rows);
    line(text, &dressed(options, "2", &aligned.head("call site")));
    for (site, cells) in sites.list.iter().zip(rows) {
        let name = names.short(&sites.name(site), site.record.kind == SiteKind::RUBY);
        line(text, &aligned.line(cells, &name));
        after(text, site);
    }
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
        let one = sums.of.live_bytes.per_sample;
        one.mul_add(one, variance).sqrt()
    })
}

/// The note about estimates.
pub(crate) fn caution(sample_bytes: Option<i64>) -> String {
    let distance = match sample_bytes {
        Some(mean) if mean > 0 => format!(", one byte in {}", count(mean)),
        _ => String::new(),
    };
    format!(
        "Figures with ~ are estimated from a sample{distance}. After ± stands the standard error; the truth is within \
         two of them in 95 of 100 cases. A range in parentheses, where few blocks were sampled, holds it as often."
    )
}

/// Limits of the totals, a line each.
pub(crate) fn caveats(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    if figures.dropped > 0 {
        lines.push(format!(
            "{} could not be followed: the budget (max_tracker_bytes), the memory or the 65,536 different sizes of 64 \
             KiB and more that fit the table ran out. The figures are too low by these.",
            counted(figures.dropped.cast_signed(), "allocation")
        ));
    }
    if figures.missed_frees > 0 {
        let was = if figures.missed_frees == 1 { "was" } else { "were" };
        lines.push(format!(
            "{} went past the hook and {was} noticed when the address came back.",
            counted(figures.missed_frees.cast_signed(), "free")
        ));
    }
    lines
}

/// What is moved out of Ruby's transient heap, up to 3.2, is the collector's where the object is not tracked.
const MOVED: &str = "(gc) has the contents of arrays, hashes, structs and objects that outlived a collection, if no line is known \
                     that made them: Ruby before 3.3 moves them then. With --objects, their lines have them; `memintro \
                     holders` says who holds them.";

/// Whether the collector has a tenth of what is live, on a Ruby that moves.
fn has_moved(report: &Report, sums: &Sums<'_>) -> bool {
    let (ruby, sites) = (report.process.ruby.as_deref().unwrap_or_default(), &report.sites);
    let mut version = ruby.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
    let is_old = (version.next(), version.next()) < (Some(3), Some(3));
    let collector =
        sites.list.iter().find(|site| site.record.kind == SiteKind::PSEUDO && sites.text(site) == b"(gc)");
    let live = |total: Estimated, freed: Estimated| total.value.saturating_sub(freed.value);
    let all = live(sums.figures.allocated_bytes, sums.figures.freed_bytes);
    is_old
        && collector.is_some_and(|site| {
            let own = live(site.record.blocks.total_bytes, site.record.blocks.freed_bytes);
            own > 0 && own >= all / 10
        })
}

fn notes(text: &mut String, report: &Report, options: &Options, sums: &Sums<'_>, has_callers: bool) {
    let (process, sites) = (&report.process, &report.sites);
    let mut notes = Vec::new();
    let figures = sums.figures;
    if sums.is_estimated() || sites.has_sampled_objects() {
        notes.push(caution(process.sample_bytes));
    }
    notes.extend(caveats(figures));
    if figures.missed_frees > 0 {
        let doctor = if options.is_command { "memintro doctor PID" } else { "Memintro.doctor" };
        notes.push(format!("`{doctor}` lists how frees can bypass the hook."));
    }
    if let Some(problem) = process.problem.as_ref().filter(|_| sites.size() > 0) {
        notes.push(format!("Allocations are not seen: {}", names::printable(problem.as_bytes())));
    }
    if has_callers {
        notes.push(
            "\"via\" names the C functions that asked malloc, by samples of single allocations: estimates."
                .to_owned(),
        );
    }
    if has_moved(report, sums) {
        notes.push(MOVED.to_owned());
    }
    if process.tracking == Some(false) && figures.allocations.value > 0 {
        notes.push("Tracking is off: these are the figures of its last run.".to_owned());
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{}{note}", dressed(options, "33", "note: "));
    }
}
