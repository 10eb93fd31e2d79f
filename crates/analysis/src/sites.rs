//! Call sites at one instant, with the texts that their records only point to.

use memintro_abi::{SiteKind, SiteRecord};

/// The live blocks of a site that are old enough.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aged {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Variance of the bytes.
    pub bytes_variance: f64,
    /// Variance of the blocks.
    pub blocks_variance: f64,
    /// Skew of the bytes.
    pub bytes_skew: f64,
    /// Skew of the blocks.
    pub blocks_skew: f64,
    /// The VM's objects that are old enough.
    pub objects: u64,
    /// Bytes of their slots.
    pub object_bytes: u64,
    /// Variance of the objects.
    pub objects_variance: f64,
    /// Variance of the bytes of their slots.
    pub object_bytes_variance: f64,
    /// Skew of the objects.
    pub objects_skew: f64,
    /// Skew of the bytes of their slots.
    pub object_bytes_skew: f64,
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
        match self.aged {
            Some(aged) => aged.bytes.cast_signed(),
            None => difference(self.record.total_bytes, self.record.freed_bytes),
        }
    }

    /// Whether any of its figures is an estimate.
    pub(crate) fn is_estimated(&self) -> bool {
        self.record.estimated != 0 || self.has_sampled_objects()
    }

    /// Whether its objects are a sample.
    pub(crate) fn has_sampled_objects(&self) -> bool {
        self.record.objects.estimated != 0
    }

    /// Live blocks that count.
    #[must_use]
    pub fn live_blocks(&self) -> i64 {
        match self.aged {
            Some(aged) => aged.blocks.cast_signed(),
            None => difference(self.record.allocations, self.record.frees),
        }
    }

    /// The VM's objects that count.
    #[must_use]
    pub fn live_objects(&self) -> i64 {
        match self.aged {
            Some(aged) => aged.objects.cast_signed(),
            None => difference(self.record.objects.allocations, self.record.objects.frees),
        }
    }

    /// Bytes of their slots.
    #[must_use]
    pub fn object_bytes(&self) -> i64 {
        match self.aged {
            Some(aged) => aged.object_bytes.cast_signed(),
            None => difference(self.record.objects.total_bytes, self.record.objects.freed_bytes),
        }
    }

    /// Live bytes of blocks and of slots.
    #[must_use]
    pub fn retained_bytes(&self) -> i64 {
        self.live_bytes().wrapping_add(self.object_bytes())
    }

    /// Live bytes of all ages, less those at the mark.
    #[must_use]
    pub fn growth(&self) -> i64 {
        difference(self.record.total_bytes, self.record.freed_bytes)
            .wrapping_sub(self.record.marked_bytes.cast_signed())
    }

    /// Mean age at which blocks were freed.
    #[must_use]
    pub fn mean_lifespan(&self) -> f64 {
        match self.record.frees {
            0 => 0.0,
            frees => self.record.age_total as f64 / frees as f64,
        }
    }
}

/// Frees can outweigh allocations after a reset.
fn difference(came: u64, went: u64) -> i64 {
    came.wrapping_sub(went).cast_signed()
}
