//! What the copies do. The first one starts the tool, makes the second one, and waits for both; both write lines.

use std::hash::RandomState;
use std::sync::atomic::Ordering;

use super::births::{Births, Sites};
use super::names::Names;
use super::output::Output;
use super::redaction::Redaction;
use super::second::{self, Split};
use super::state::{Stage, State};
use super::strings::Strings;
use super::tool::{self, Command, Tool};
use super::vm::Vm;
use super::writer::Writer;
use crate::account::frozen::prefetch;
use crate::atlas::Object;
use crate::copy::Life;
use crate::heap::FrozenPage;

/// Version of the lines; a reader of another one may not know their fields.
const FORMAT: u64 = 1;

pub(super) struct Plan<'a> {
    pub(super) seconds: u32,
    pub(super) command: &'a Command,
    pub(super) output: i32,
    pub(super) errors: i32,
    pub(super) state: &'a State,
    pub(super) vm: &'a Vm,
    pub(super) key: &'a RandomState,
    pub(super) redaction: Redaction,
    pub(super) skipped: &'a [usize],
    /// Members of the first line.
    pub(super) head: &'a [u8],
    /// Where objects are tracked.
    pub(super) sites: Option<&'a Sites>,
    /// Without births, the copy is of no use.
    pub(super) needs_births: bool,
}

impl Plan<'_> {
    pub(super) fn life(&self) -> Life<2> {
        Life { seconds: self.seconds, kept: [self.output, self.errors] }
    }
}

pub(super) fn run(plan: &Plan<'_>, pages: &[FrozenPage]) {
    // SAFETY: a signal that would end the copy before it has waited for the tool.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let state = plan.state;
    let Some(tool) = tool::start(plan.command, plan.output, plan.errors, &state.error) else { return };
    write(plan, pages, tool);
    state.no_memory.store(1, Ordering::Release);
    tool.finish(state, false);
}

fn write(plan: &Plan<'_>, pages: &[FrozenPage], tool: Tool) -> Option<()> {
    let state = plan.state;
    let out = Output::to(tool, state)?;
    let strings = Strings { redaction: plan.redaction, key: plan.key };
    let names = Names::new(plan.vm, plan.redaction, state)?;
    let mut writer = Writer::new(out, plan.vm, state.first(), strings, names, plan.skipped, pages)?;
    writer.births = plan.sites.and_then(|sites| Births::read(sites, pages));
    if plan.needs_births && writer.births.is_none() {
        // The host makes another copy.
        crate::copy::end(false);
    }
    state.first().set(Stage::Walking);
    writer.out.bytes(b"{\"type\":\"ROOT\", \"root\":\"memintro\", \"format\":");
    writer.out.number(FORMAT);
    writer.out.bytes(plan.head);
    if let Some(births) = &writer.births {
        births.head(&mut writer.out);
    }
    writer.out.bytes(b", \"references\":[]}\n");
    writer.roots();
    // What comes first must be with the tool before another copy writes.
    writer.out.publish();
    match second::split(tool, pages, plan.seconds, state) {
        Split::First(None) => {}
        Split::First(Some(second)) => writer.out.watch(second),
        Split::Second(tool) => {
            writer.progress = state.second();
            writer.out = Output::to(tool, state)?;
            objects(&mut writer, state, pages);
            writer.out.finish();
        }
    }
    objects(&mut writer, state, pages);
    writer.out.end_lines();
    let count = state.objects();
    writer.out.bytes(b"{\"type\":\"ROOT\", \"root\":\"end\", \"objects\":");
    writer.out.number(count);
    writer.out.bytes(b", \"references\":[]}\n");
    writer.out.finish();
    Some(())
}

/// Writes the objects of the pages that no other copy writes.
fn objects(writer: &mut Writer<'_>, state: &State, pages: &[FrozenPage]) {
    let mut count = 0;
    while let Some(taken) = state.take(pages) {
        for (number, page) in taken.clone().zip(pages.get(taken).unwrap_or_default()) {
            let (mut slot, mut index) = (page.start, 0);
            while slot < page.end {
                fetch_ahead(page, slot);
                // SAFETY: a slot of a page.
                let object = unsafe { Object::read(slot) };
                count += u64::from(writer.object(object, page.stride, (number, index)));
                slot += page.stride;
                index += 1;
            }
        }
        writer.progress.objects.store(count, Ordering::Relaxed);
        writer.out.end_part();
    }
}

/// Has the processor fetch what some slots further will be read: waiting for it takes longer than writing a line. First the
/// slot, then what the object has outside of it, then the first key of a small Hash, from which its names are made.
#[inline(always)]
fn fetch_ahead(page: &FrozenPage, slot: usize) {
    const FAR: usize = 24;
    const NEAR: usize = 8;
    const NEXT: usize = 3;
    // Behind the page, it is any memory, which is not read.
    prefetch(slot.wrapping_add(FAR * page.stride));
    let ahead = slot + NEAR * page.stride;
    if ahead < page.end {
        // SAFETY: a slot of the page.
        prefetch(unsafe { Object::read(ahead) }.outside());
    }
    let next = slot + NEXT * page.stride;
    if next < page.end {
        // SAFETY: a slot of the page.
        prefetch(unsafe { Object::read(next) }.first_key());
    }
}
