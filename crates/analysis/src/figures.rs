//! The figures of a call site, by their list in `memintro_abi`: how each is read, and what is known of its error.

use memintro_abi::{Adds, BlockFigures, Figure, SITE_FIGURES, SiteRecord, Unit};

use crate::estimates::{Estimate, Estimates};
use crate::sites::{Aged, Site, Sites};

pub(crate) mod computed;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A figure that only grows.
    Sum(u64),
    /// A figure that may be negative.
    Difference(i64),
    /// A mean.
    Mean(f64),
}

impl Value {
    /// As an integer; of a mean the whole part.
    #[must_use]
    pub fn whole(self) -> i64 {
        match self {
            Self::Sum(value) => value.cast_signed(),
            Self::Difference(value) => value,
            Self::Mean(value) => value as i64,
        }
    }

    /// As a floating-point number. Bytes above 2^53 may become equal.
    #[must_use]
    pub fn approximate(self) -> f64 {
        match self {
            Self::Sum(value) => value as f64,
            Self::Difference(value) => value as f64,
            Self::Mean(value) => value,
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Sum(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Difference(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Mean(value)
    }
}

/// How a figure of the list is read.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The figure.
    pub figure: &'static Figure,
    value: Compute,
    estimate: Estimating,
}

/// A figure of a record; with blocks and objects of some age, only these count as live.
type Compute = fn(&SiteRecord, Option<&Aged>) -> Value;
type Estimating = fn(&Estimates) -> Option<&Estimate>;

macro_rules! value {
    (Sum $name:ident) => {{
        fn value(record: &SiteRecord, _: Option<&Aged>) -> Value {
            record.blocks.$name.value.into()
        }
        value
    }};
    (Max $name:ident) => {{
        fn value(record: &SiteRecord, _: Option<&Aged>) -> Value {
            record.blocks.$name.into()
        }
        value
    }};
    ($adds:ident $name:ident) => {{
        fn value(record: &SiteRecord, aged: Option<&Aged>) -> Value {
            computed::$name(record, aged).into()
        }
        value
    }};
}

macro_rules! estimate {
    (Max $name:ident) => {{
        fn estimate(_: &Estimates) -> Option<&Estimate> {
            None
        }
        estimate
    }};
    (Object $name:ident) => {{
        fn estimate(of: &Estimates) -> Option<&Estimate> {
            Some(&of.objects.$name)
        }
        estimate
    }};
    ($adds:ident $name:ident) => {{
        fn estimate(of: &Estimates) -> Option<&Estimate> {
            Some(&of.$name)
        }
        estimate
    }};
}

macro_rules! define_readers {
    (
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_unit:ident;)+ }
        exact {}
        maxima { $($maxima:tt)* }
        old { $($old:tt)* }
        all { $(
            $(#[doc = $doc:literal])+
            $adds:ident $name:ident: $unit:ident, $column:ident $(($place:literal))? $heading:literal;
        )+ }
    ) => {
        const READERS: [(Compute, Estimating); SITE_FIGURES.len()] =
            [$((value!($adds $name), estimate!($adds $name)),)+];

        /// The estimates of what adds up by its sum. The others are to be filled in.
        pub(crate) fn estimates(blocks: &BlockFigures, block: f64, byte: f64) -> Estimates {
            Estimates {
                $($sum: Estimate::of_sum(&blocks.$sum, match Unit::$sum_unit {
                    Unit::Bytes | Unit::Change => Some(byte),
                    Unit::Count => Some(block),
                    Unit::Age | Unit::MeanAge | Unit::Ages => None,
                }),)+
                ..Estimates::default()
            }
        }
    };
}
memintro_abi::site_figures!(define_readers);

/// The first figure of the list, for what must have one and sorts nothing.
#[must_use]
pub fn first() -> Reader {
    let [(value, estimate), ..] = READERS;
    Reader { figure: &SITE_FIGURES[0], value, estimate }
}

/// Live bytes of a record's blocks.
#[must_use]
pub fn live_bytes(record: &SiteRecord) -> i64 {
    computed::live_bytes(record, None)
}

/// All figures, in the order of JSON.
pub fn all() -> impl Iterator<Item = Reader> + Clone {
    SITE_FIGURES.iter().zip(READERS).map(|(figure, (value, estimate))| Reader { figure, value, estimate })
}

/// The figure of this name, if call sites can be sorted by it.
#[must_use]
pub fn sortable(name: &str) -> Option<Reader> {
    all().find(|reader| reader.figure.name == name && reader.figure.is_sortable())
}

impl Sites {
    /// Sorts them: greater figures first, then the earlier site.
    pub fn sort(&mut self, figure: Reader) {
        self.list.sort_unstable_by(|one, other| {
            let of = |site| figure.of(site).approximate();
            of(other).total_cmp(&of(one)).then(one.record.id.cmp(&other.record.id))
        });
    }
}

impl Reader {
    /// The figure of a site.
    #[must_use]
    pub fn of(&self, site: &Site) -> Value {
        (self.value)(&site.record, site.aged.as_ref())
    }

    /// The figure of a record.
    #[must_use]
    pub fn of_record(&self, record: &SiteRecord) -> Value {
        (self.value)(record, None)
    }

    /// Its variance and skew, if it is an estimate.
    #[must_use]
    pub fn estimate<'a>(&self, estimates: &'a Estimates) -> Option<&'a Estimate> {
        (self.estimate)(estimates)
    }

    /// Whether it is a figure of blocks of all ages, which is always known.
    pub(crate) fn is_of_blocks(&self) -> bool {
        matches!(self.figure.adds, Adds::Sum | Adds::Max | Adds::Derived)
    }
}
