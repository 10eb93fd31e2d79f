//! Makes a report of the raw dump that a dying process leaves.

use std::collections::HashMap;

use memintro_abi::{EXIT_STATUS_UNKNOWN, SiteKind};

use super::{Process, Report, read};
use crate::raw_dump::{RawDump, RawFigures, SiteName, Stacks};
use crate::sites::{Caller, Callers, Frame, Site, Sites};

/// The names of the frames that led to a native call site, the innermost first, and the line of C of that one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeNames {
    /// Names.
    pub frames: Vec<String>,
    /// File and line.
    pub location: Option<String>,
}

impl Report {
    /// The report of a dump; what is known of native call sites is by their numbers. `time` is that of the dump, in words.
    #[must_use]
    pub fn of_dump(dump: &RawDump<'_>, names: &HashMap<u32, NativeNames>, time: String) -> Self {
        let header = &dump.header;
        let mut sites = Sites::default();
        for site in &dump.sites {
            let callers = names.get(&site.figures.id()).map(|names| {
                sites.callers.push(callers(names));
                (sites.callers.len() - 1) as u32
            });
            let (kind, name) = name_of(&site.name);
            push(&mut sites, kind, name, site.line, &site.figures);
            if let Some(last) = sites.list.last_mut() {
                last.callers = callers;
            }
        }
        let status = header.exit_status;
        let ended = header.signal == 0 && status != EXIT_STATUS_UNKNOWN;
        Self {
            process: Process {
                pid: Some(header.pid.into()),
                memintro: Some(env!("CARGO_PKG_VERSION").to_owned()),
                generation: Some(header.figures.generation.cast_signed()),
                time: Some(time),
                signal: Some(header.signal.into()),
                exit_status: ended.then(|| status.into()),
                sample_bytes: (header.sample_bytes > 0).then(|| header.sample_bytes.cast_signed()),
                ..Process::default()
            },
            totals: header.figures,
            stacks: dump.stacks.as_ref().map(|stacks| whole(dump, stacks)),
            sites,
            older_than: None,
            root: None,
        }
    }
}

fn callers(names: &NativeNames) -> Callers {
    let one = Caller {
        frames: names.frames.clone(),
        location: names.location.clone(),
        samples: 1,
        share: 1.0,
        ..Caller::default()
    };
    Callers { samples: 1, live_samples: 0, list: vec![one] }
}

fn push(sites: &mut Sites, kind: SiteKind, name: Vec<u8>, line: u32, figures: &RawFigures) {
    let mut record = read::rows::record(sites.list.len(), kind, line);
    (record.blocks, record.objects) = (*figures.blocks(), *figures.objects());
    sites.texts.push(name);
    let text = (sites.texts.len() - 1) as u32;
    sites.list.push(Site { record, text, aged: None, callers: None, stack: None, knows_old: false });
}

fn whole(dump: &RawDump<'_>, stacks: &Stacks<'_>) -> Sites {
    let mut sites = Sites::default();
    let mut known: HashMap<u32, u32> = HashMap::new();
    for one in stacks.all() {
        let Some(site) = dump.sites.get(one.site) else { continue };
        let (kind, name) = name_of(&site.name);
        push(&mut sites, kind, name, site.line, &one.figures);
        if !one.is_whole() {
            continue;
        }
        let mut stack = Vec::new();
        for frame in stacks.frames(one) {
            stack.push(*known.entry(frame.number).or_insert_with(|| {
                let (path, label) = (frame.path.to_vec(), frame.label.map(<[u8]>::to_vec));
                sites.frames.push(Frame { path, line: frame.line, label });
                (sites.frames.len() - 1) as u32
            }));
        }
        sites.stacks.push(stack);
        let index = (sites.stacks.len() - 1) as u32;
        if let Some(last) = sites.list.last_mut() {
            last.stack = Some(index);
        }
    }
    sites
}

fn name_of(name: &SiteName<'_>) -> (SiteKind, Vec<u8>) {
    match *name {
        SiteName::Ruby(path) => (SiteKind::RUBY, path.to_vec()),
        SiteName::Native { module, offset } => {
            let file = module.rsplit(|byte| *byte == b'/').next().unwrap_or(module);
            (SiteKind::NATIVE, [file, b"(+", offset, b")"].concat())
        }
        SiteName::Pseudo(name) => (SiteKind::PSEUDO, name.to_vec()),
    }
}
