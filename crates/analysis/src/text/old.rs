//! A table of call sites that counts only blocks, and objects if they are tracked, of at least some age.

use memintro_abi::{Adds, Unit};

use super::names::Names;
use super::units::{bytes, count, counted};
use super::{Options, caution, dressed, line, shown, write_table};
use crate::estimates::Estimates;
use crate::figures::{self, Reader};
use crate::report::Report;
use crate::sites::Site;

/// Columns from left to right, with the headings that they have here. Those of objects come first, if objects were tracked.
const OBJECTS: [(&str, &str); 3] =
    [("retained", "retained_bytes"), ("objects", "live_objects"), ("in slots", "object_bytes")];
const BLOCKS: [(&str, &str); 2] = [("live", "live_bytes"), ("blocks", "live_blocks")];

impl Report {
    /// The table of a report in which only blocks and objects count that outlived so many collections.
    pub(super) fn old_text(&self, options: &Options, collections: u32) -> String {
        let sites = &self.sites;
        let has_objects = sites.has_objects();
        let mut text = String::new();
        let objects = if has_objects { "or objects " } else { "" };
        line(
            &mut text,
            &format!(
                "pid {}: {} with blocks {objects}that outlived {}, by {}\n",
                self.process.pid.unwrap_or_default(),
                counted(sites.list.len() as i64, "call site"),
                counted(collections.into(), "collection"),
                options.by
            ),
        );
        let columns: Vec<(&str, Reader)> = OBJECTS
            .iter()
            .filter(|_| has_objects)
            .chain(&BLOCKS)
            .filter_map(|(heading, name)| Some((*heading, figures::sortable(name)?)))
            .collect();
        let rows: Vec<Vec<String>> = sites
            .list
            .iter()
            .map(|site| {
                let all = site.is_estimated().then(|| Estimates::of(site));
                let cell = |(_, reader): &(&str, Reader)| {
                    let is_estimated = match reader.figure.name {
                        "retained_bytes" => true,
                        _ if reader.figure.adds == Adds::Object => site.has_sampled_objects(),
                        _ => site.record.blocks.estimated != 0,
                    };
                    let format = if reader.figure.unit == Unit::Bytes { bytes } else { count };
                    let of = all.as_ref().filter(|_| is_estimated);
                    shown(of.and_then(|of| reader.estimate(of)), reader.of(site).whole(), format)
                };
                columns.iter().map(cell).collect()
            })
            .collect();
        let titles: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
        write_table(
            &mut text,
            options,
            &Names::new(options.root.as_deref()),
            sites,
            &titles,
            &rows,
            |_, _| {},
        );
        if sites.list.iter().any(Site::is_estimated) {
            text.push('\n');
            line(
                &mut text,
                &format!("{}{}", dressed(options, "33", "note: "), caution(self.process.sample_bytes)),
            );
        }
        text
    }
}
