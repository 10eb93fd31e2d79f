//! Call sites at one instant, with the texts that their records only point to.

use memintro_abi::{Estimated, ObjectFigures, SiteKind, SiteRecord};

use crate::figures::computed;

/// The live blocks of a site that are old enough.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aged {
    /// Bytes.
    pub bytes: Estimated,
    /// Blocks.
    pub blocks: Estimated,
    /// The VM's objects that are old enough.
    pub objects: Estimated,
    /// Bytes of their slots.
    pub object_bytes: Estimated,
}

/// One site.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Its figures. The path pointer in it may no longer be valid.
    pub record: SiteRecord,
    /// The index of its path among the texts, or of its name if it is not a line of Ruby.
    pub text: u32,
    /// The blocks that count as live, if only blocks of some age do.
    pub aged: Option<Aged>,
    /// The index of its native callers, if any are known.
    pub callers: Option<u32>,
    /// The index of its whole stack, if it has one.
    pub stack: Option<u32>,
    /// Whether it is known which blocks outlived a collection. A raw dump does not say it.
    pub knows_old: bool,
}

/// A line of a whole stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Path of the file, or a name that is no line of Ruby.
    pub path: Vec<u8>,
    /// The line; 0: it is no line of Ruby.
    pub line: u32,
    /// The method or block.
    pub label: Option<Vec<u8>>,
}

/// A native caller of a site, with the names of its frames, the innermost first; none: all others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caller {
    /// Names of frames.
    pub frames: Vec<String>,
    /// File and line of C of the innermost frame.
    pub location: Option<String>,
    /// Samples.
    pub samples: u32,
    /// Samples whose block is live.
    pub live_samples: u32,
    /// Share of the site's allocations.
    pub share: f64,
    /// Share of its live bytes; `None` if no sampled block is live.
    pub live_share: Option<f64>,
}

/// The native callers of a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Callers {
    /// Samples of the site.
    pub samples: u32,
    /// Those whose block is live.
    pub live_samples: u32,
    /// The callers.
    pub list: Vec<Caller>,
}

// SAFETY: the pointer in the record is never followed.
unsafe impl Send for Site {}

/// Sites in order, and the sums of the others.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// The sites that are shown.
    pub list: Vec<Site>,
    /// Their paths and names, each once.
    pub texts: Vec<Vec<u8>>,
    /// Their native callers.
    pub callers: Vec<Callers>,
    /// Lines of whole stacks, each once.
    pub frames: Vec<Frame>,
    /// Whole stacks: indices of frames, the innermost first.
    pub stacks: Vec<Vec<u32>>,
    /// Number of sites that are left out.
    pub left_out: usize,
    /// The live bytes of these.
    pub live_bytes_left_out: i64,
    /// The variance of these bytes, if any of them was sampled.
    pub variance_left_out: Option<f64>,
}

impl Sites {
    /// Number of all sites, with those that are left out.
    #[must_use]
    pub fn size(&self) -> usize {
        self.list.len().saturating_add(self.left_out)
    }

    /// Leaves out all but the first ones. Their live bytes are added to those that were left out before.
    pub fn leave_out_beyond(&mut self, most: usize) {
        for site in self.list.iter().skip(most) {
            self.left_out = self.left_out.saturating_add(1);
            self.live_bytes_left_out = self.live_bytes_left_out.wrapping_add(site.live_bytes());
            let blocks = &site.record.blocks;
            if blocks.estimated != 0 {
                let variance = blocks.total_bytes.variance - blocks.freed_bytes.variance;
                self.variance_left_out = Some(self.variance_left_out.unwrap_or(0.0) + variance);
            }
        }
        self.list.truncate(most);
    }

    /// Whether objects were tracked at any of them.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.list.iter().any(|site| site.record.objects != ObjectFigures::default())
    }

    /// The lines of a site's whole stack, the innermost first. A site without one is a stack of one line.
    #[must_use]
    pub fn frames_of(&self, site: &Site) -> Vec<Frame> {
        let stack =
            site.stack.and_then(|index| self.stacks.get(index as usize)).filter(|stack| !stack.is_empty());
        match stack {
            Some(stack) => {
                stack.iter().filter_map(|index| self.frames.get(*index as usize)).cloned().collect()
            }
            None => vec![Frame { path: self.text(site).to_vec(), line: site.record.line, label: None }],
        }
    }

    /// Its native callers.
    #[must_use]
    pub fn callers_of(&self, site: &Site) -> Option<&Callers> {
        self.callers.get(site.callers? as usize)
    }

    /// Its path, or its name if it is not a line of Ruby.
    #[must_use]
    pub fn text(&self, site: &Site) -> &[u8] {
        self.texts.get(site.text as usize).map_or(b"", Vec::as_slice)
    }

    /// Whether objects of any of them are a sample.
    #[must_use]
    pub fn has_sampled_objects(&self) -> bool {
        self.list.iter().any(Site::has_sampled_objects)
    }

    /// `path:line`, or the name of the site.
    #[must_use]
    pub fn name(&self, site: &Site) -> Vec<u8> {
        let mut name = self.text(site).to_vec();
        if site.record.kind == SiteKind::RUBY {
            name.extend_from_slice(format!(":{}", site.record.line).as_bytes());
        }
        name
    }
}

impl Site {
    /// Live bytes of the blocks that count.
    #[must_use]
    pub fn live_bytes(&self) -> i64 {
        computed::live_bytes(&self.record, self.aged.as_ref())
    }

    /// Whether any of its figures is an estimate.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.record.blocks.estimated != 0 || self.has_sampled_objects()
    }

    /// Whether its objects are a sample.
    #[must_use]
    pub fn has_sampled_objects(&self) -> bool {
        self.record.objects.estimated != 0
    }
}
