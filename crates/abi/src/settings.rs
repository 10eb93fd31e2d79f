//! Made by `rake settings` from lib/memintro/support/settings.rb.

use core::ffi::CStr;

use crate::Mode;

/// Options of a start. Zero means "the default".
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// The mode.
    pub mode: Mode,
    /// Sampled mode: sample one byte in this many, on average.
    pub sample_bytes: u64,
    /// Lines of Ruby in a call site, 1 to 64.
    pub stack_depth: u64,
    /// Greatest number of call sites to tell apart; the rest share `(other)`.
    pub max_sites: u64,
    /// Most memory that tracking itself may use, at least 4,194,304.
    pub max_tracker_bytes: u64,
    /// [`Mode::SAMPLED`]: the seed of the draws; by default the clock, with the process id in a child.
    pub seed: u64,
}

/// A setting that the hook reads.
#[derive(Clone, Copy, Debug)]
pub struct StartSetting {
    /// Its name.
    pub name: &'static str,
    /// Its variable.
    pub variable: &'static CStr,
    /// Its value if it is not set.
    pub default: u64,
    /// Its greatest value.
    pub most: u64,
}

/// The settings that the hook reads, in the order of [`StartOptions::values`].
pub const START_SETTINGS: [StartSetting; 4] = [
    StartSetting {
        name: "sample_bytes",
        variable: c"MEMINTRO_SAMPLE_BYTES",
        default: 524288,
        most: 1073741824,
    },
    StartSetting { name: "stack_depth", variable: c"MEMINTRO_STACK_DEPTH", default: 1, most: 64 },
    StartSetting { name: "max_sites", variable: c"MEMINTRO_MAX_SITES", default: 1048576, most: 16777216 },
    StartSetting {
        name: "max_tracker_bytes",
        variable: c"MEMINTRO_MAX_TRACKER_BYTES",
        default: u64::MAX,
        most: u64::MAX,
    },
];

impl StartOptions {
    /// Options with these values.
    #[must_use]
    pub const fn new(mode: Mode, values: [u64; 4]) -> Self {
        let [sample_bytes, stack_depth, max_sites, max_tracker_bytes] = values;
        Self { mode, sample_bytes, stack_depth, max_sites, max_tracker_bytes, seed: 0 }
    }

    /// The values of the settings.
    #[must_use]
    pub const fn values(&self) -> [u64; 4] {
        [self.sample_bytes, self.stack_depth, self.max_sites, self.max_tracker_bytes]
    }
}
