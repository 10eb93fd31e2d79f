//! Call sites at one instant, with the texts that their records only point to.

use memintro_abi::{Estimated, SiteKind, SiteRecord};

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
    /// Number of sites that are left out.
    pub left_out: usize,
    /// The live bytes of these.
    pub live_bytes_left_out: i64,
    /// The variance of these bytes, if any of them was sampled.
    pub variance_left_out: Option<f64>,
}

impl Sites {
    pub(crate) fn text(&self, site: &Site) -> &[u8] {
        self.texts.get(site.text as usize).map_or(b"", Vec::as_slice)
    }

    /// Whether objects of any of them are a sample.
    pub(crate) fn has_sampled_objects(&self) -> bool {
        self.list.iter().any(Site::has_sampled_objects)
    }

    /// `path:line`, or the name of the site.
    pub(crate) fn name(&self, site: &Site) -> Vec<u8> {
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
    pub(crate) fn is_estimated(&self) -> bool {
        self.record.blocks.estimated != 0 || self.has_sampled_objects()
    }

    /// Whether its objects are a sample.
    pub(crate) fn has_sampled_objects(&self) -> bool {
        self.record.objects.estimated != 0
    }
}
